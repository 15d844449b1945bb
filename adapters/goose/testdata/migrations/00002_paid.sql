-- +goose Up
ALTER TABLE orders ADD COLUMN paid BOOLEAN NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE orders DROP COLUMN paid;
