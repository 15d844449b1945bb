-- What layout 1 of docs/versioning.md stores in MySQL and MariaDB: its tables; the key "k", which the owner worker
-- holds; the key "p", of which worker has two of two permits; and the key "b", whose permits are free. TOKEN, NOW and ENDS stand for numbers.
CREATE TABLE app.locker_locks (
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
) ENGINE = InnoDB;

CREATE TABLE app.locker_locks_permits (
	hash    BINARY(32) NOT NULL,
	claim   BINARY(32) NOT NULL,
	id      VARBINARY(4096) NOT NULL DEFAULT x'',
	owner   VARBINARY(4096) NOT NULL DEFAULT x'',
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
) ENGINE = InnoDB;

INSERT INTO app.locker_locks (hash, lock_key, id, owner, token, last_token, ttl, since, expires, forget) VALUES
	(UNHEX(SHA2('k', 256)), 'k', '0f0e0d0c-1111-4222-8333-444455556666:1', 'worker', TOKEN, TOKEN, 60000000, NOW, ENDS, ENDS),
	(UNHEX(SHA2('p', 256)), 'p', 'permits 2 2 0', '', 0, TOKEN, 0, NOW, ENDS, ENDS),
	(UNHEX(SHA2('b', 256)), 'b', 'permits 2 0 0', '', 0, TOKEN, 0, NOW, ENDS, ENDS);

INSERT INTO app.locker_locks_permits (hash, claim, id, owner, era, permits, token, ttl, since, expires, forget) VALUES
	(UNHEX(SHA2('p', 256)), UNHEX(SHA2('0f0e0d0c-1111-4222-8333-444455556666:2', 256)), '0f0e0d0c-1111-4222-8333-444455556666:2',
		'worker', NOW, 2, TOKEN, 60000000, NOW, ENDS, ENDS);
