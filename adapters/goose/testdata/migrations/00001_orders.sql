-- +goose Up
CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL);

-- +goose Down
DROP TABLE orders;
