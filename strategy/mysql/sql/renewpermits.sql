-- renewpermits(1 pairs of hash and claim, 2 how many): as renew.sql. It locks no head, so that the renewals of a key
-- do not wait for those who change its permits; heldpermits.sql looks at the heads.
UPDATE (
	SELECT p.hash, p.claim FROM {permits} AS p FORCE INDEX (PRIMARY) WHERE p.era > 0 AND p.expires > {now} AND (%[1]s) LIMIT %[2]d FOR UPDATE SKIP LOCKED
) AS held STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = held.hash AND p.claim = held.claim
SET
	p.token = IF(LAST_INSERT_ID(IF(@@autocommit, 1, {manual})) = 0, p.token, p.token),
	p.expires = GREATEST(p.expires, {now} + p.ttl),
	p.forget = GREATEST(p.forget, ({now} + p.ttl + GREATEST(2 * p.ttl, {keep})) DIV {minute} * {minute} + {minute})
