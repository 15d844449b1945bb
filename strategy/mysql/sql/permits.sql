-- The claims of permits: see judged.sql. claim is SHA-256 of id. era is 0 in a row that is no claim.
CREATE TABLE IF NOT EXISTS {permits} (
	hash    BINARY(32) NOT NULL,
	claim   BINARY(32) NOT NULL,
	id      VARBINARY(4096) NOT NULL DEFAULT '',
	owner   VARBINARY(4096) NOT NULL DEFAULT '',
	era     BIGINT NOT NULL DEFAULT 0,
	permits INT NOT NULL DEFAULT 0,
	token   BIGINT NOT NULL DEFAULT 0,
	ttl     BIGINT NOT NULL DEFAULT 0,
	since   BIGINT NOT NULL DEFAULT 0,
	expires BIGINT NOT NULL DEFAULT 0,
	forget  BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (hash, claim),
	KEY ends (hash, era, expires),
	KEY forget (forget)
) ENGINE = InnoDB
