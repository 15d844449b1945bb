-- renew(1 pairs of hash and id, 2 how many). A row that another transaction has locked is passed
-- by, so that no key holds up the others, and no two batches each other. The inner SELECT locks
-- the newest versions; the LIMIT keeps it from being merged into the outer statement, which
-- changes those rows alone. Its LAST_INSERT_ID is {manual} without autocommit.
UPDATE (
	SELECT hash FROM {table} FORCE INDEX (PRIMARY) WHERE expires > {now} AND (%[1]s) LIMIT %[2]d FOR UPDATE SKIP LOCKED
) AS held STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.hash = held.hash
SET
	l.token = IF(LAST_INSERT_ID(IF(@@autocommit, 1, {manual})) = 0, l.token, l.token),
	l.expires = GREATEST(l.expires, {now} + l.ttl),
	l.forget = GREATEST(l.forget, ({now} + l.ttl + GREATEST(2 * l.ttl, {keep})) DIV {minute} * {minute} + {minute})
