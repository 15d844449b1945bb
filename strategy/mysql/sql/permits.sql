-- The claims of permits. claim is SHA-256 of id. era is 0 in a row that is no claim.
--
-- While a key has permits, the id of its row is "permits LIMIT OUT EARLIER": the limit that was named last, how many
-- permits are out, and the limit before that (0: there was none). The row is the head of an era then, which began at
-- its since. The claims of the era are the rows of {permits} with the hash of the head, and its since as their era.
-- Their permits add up to OUT, ended or not, since each statement that changes them has the head locked first.
-- The head does not expire before a claim does whose holder knows so. So what knows only locks takes the key for
-- locked. Once the head has expired, or has another id, the era is over and its claims are void.
--
-- The owner of a head is the bid, or empty: "COUNT SINCE HEARD LOCKER CLAIM". COUNT permits are kept free for LOCKER,
-- which has waited since SINCE and was heard of at HEARD, in microseconds of the server's clock. LOCKER and CLAIM are
-- the beginnings of hashes.
CREATE TABLE IF NOT EXISTS {permits} (
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
) ENGINE = InnoDB
