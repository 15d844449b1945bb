-- lookpermits(1 hash, 2 claim): the row of a key, when the first of its claims ends (or NULL), and whether the claim
-- counts. It locks nothing. It may be older than what a statement behind it judges.
SELECT id, owner, since, expires, {now},
	(SELECT p.expires FROM {permits} AS p FORCE INDEX (ends) WHERE p.hash = h.hash AND p.era = h.since ORDER BY p.expires LIMIT 1),
	EXISTS (SELECT 1 FROM {permits} AS p FORCE INDEX (PRIMARY) WHERE p.hash = h.hash AND p.claim = x'%[2]x' AND p.era = h.since)
FROM {table} AS h WHERE hash = x'%[1]x'
