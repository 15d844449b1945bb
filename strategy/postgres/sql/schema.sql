-- Where the tables exist this takes no lock on them and needs no permission, which CREATE IF
-- NOT EXISTS would; where they do not, the second of two processes waits for the first. id
-- is empty and expires -infinity when no claim holds the key; last_token is the last that
-- was reserved. The second table has the claims of permits: see judged.sql.
--
-- The hash is filled in by a trigger. A generated column would not be in a publication, and it is the replica identity: what applies
-- the changes elsewhere would end at the first UPDATE, or PostgreSQL 18 would refuse that. (Tables that were made so go
-- on working: no statement writes the hash.) The trigger is for INSERT only: one for UPDATE, of whatever columns, would lock each
-- row that is updated once more.
SELECT pg_advisory_xact_lock(7811887012);
DO $create$ BEGIN IF to_regclass({literal}) IS NULL THEN
	CREATE TABLE {table} (
		hash       bytea PRIMARY KEY,
		key        bytea NOT NULL,
		id         bytea NOT NULL DEFAULT '',
		owner      bytea NOT NULL DEFAULT '',
		token      bigint NOT NULL DEFAULT 0,
		last_token bigint NOT NULL DEFAULT 0,
		since      timestamptz NOT NULL DEFAULT '-infinity',
		expires    timestamptz NOT NULL DEFAULT '-infinity',
		forget     timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 min'
	) WITH (fillfactor = 70);
	CREATE INDEX ON {table} (forget);
	CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN new.hash = pg_catalog.sha256(new.key); RETURN new; END';
	CREATE TRIGGER locker_hash BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {function}();
END IF; END $create$;
DO $create$ BEGIN IF to_regclass({permits literal}) IS NULL THEN
	CREATE TABLE {permits} (
		hash    bytea NOT NULL,
		era     timestamptz NOT NULL,
		id      bytea NOT NULL,
		owner   bytea NOT NULL,
		permits int NOT NULL,
		token   bigint NOT NULL,
		since   timestamptz NOT NULL,
		expires timestamptz NOT NULL,
		forget  timestamptz NOT NULL,
		PRIMARY KEY (id, hash, era)
	);
	CREATE INDEX ON {permits} (hash, era, expires);
	CREATE INDEX ON {permits} (forget);
END IF; END $create$;
