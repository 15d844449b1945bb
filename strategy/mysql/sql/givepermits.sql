-- givepermits(1 hash, 2 claim, 3 limit): gives back the permits of a claim, at a key with that limit and no bid. Its
-- LAST_INSERT_ID is 2 if the claim had not ended, 1 if it had, {manual} without autocommit, and 0 if nothing was changed: then
-- releasepermits.sql judges. It does a part of what that statement does, in less time.
--
-- The head is locked first. Sent twice, or late, it finds that the row is no claim, or is not there; so it does after
-- the claim was forgotten. A lost reply: the permits are free. The key is free with its last claim.
UPDATE (
	SELECT h.hash, {word 3} - p.permits AS leaves, {word 4} AS earlier, IF(p.expires > {now}, 2, 1) AS answer
	FROM {table} AS h FORCE INDEX (PRIMARY)
	STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash AND p.claim = x'%[2]x'
	WHERE h.hash = x'%[1]x' AND LEFT(h.id, LENGTH('permits %[3]d ')) = 'permits %[3]d ' AND h.expires > {now} AND h.owner = x'' AND p.era = h.since
	LIMIT 1 FOR UPDATE
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = x'%[2]x'
SET
	h.token = IF(LAST_INSERT_ID(IF(@@autocommit, v.answer, {manual})) = 0, h.token, h.token),
	h.id = IF(v.leaves > 0, CONCAT('permits %[3]d ', v.leaves, ' ', v.earlier), x''),
	h.expires = IF(v.leaves > 0, h.expires, 0),
	p.era = 0
