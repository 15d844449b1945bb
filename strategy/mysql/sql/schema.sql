-- Times and tokens are microseconds since 1970, UTC. hash is SHA-256 of lock_key, which may be
-- longer than an index takes. id is empty and expires 0 when no claim holds the key; last_token is
-- the last that was reserved. After forget, if expires is over, nobody needs the row.
CREATE TABLE IF NOT EXISTS {table} (
	hash       BINARY(32) NOT NULL PRIMARY KEY,
	lock_key   BLOB NOT NULL,
	id         VARBINARY(4096) NOT NULL DEFAULT x'',
	owner      VARBINARY(4096) NOT NULL DEFAULT x'',
	token      BIGINT NOT NULL DEFAULT 0,
	last_token BIGINT NOT NULL DEFAULT 0,
	ttl        BIGINT NOT NULL DEFAULT 0,
	since      BIGINT NOT NULL DEFAULT 0,
	expires    BIGINT NOT NULL DEFAULT 0,
	forget     BIGINT NOT NULL DEFAULT 0,
	KEY forget (forget)
) ENGINE = InnoDB
