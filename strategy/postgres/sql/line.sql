-- line: the places of processes that wait, for the prototype. What is in it need not survive a crash.
SELECT pg_advisory_xact_lock(7811887013);
CREATE UNLOGGED TABLE IF NOT EXISTS {table_line} (
	hash    bytea NOT NULL,
	locker  text NOT NULL,
	place   bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	expires timestamptz NOT NULL,
	PRIMARY KEY (hash, locker)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS locker_locks_line_place ON {table_line} (hash, place);
