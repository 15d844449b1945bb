-- lookpermits(1 hash, 2 claim): the row of a key, when the first of its claims ends (or NULL), whether the claim
-- counts, and whether the session has the settings that grants need: without autocommit each look sees what the first one
-- saw. It locks nothing. It may be older than what a statement behind it judges.
SELECT id, owner, since, expires, {now},
	(SELECT p.expires FROM {permits} AS p FORCE INDEX (ends) WHERE p.hash = h.hash AND p.era = h.since ORDER BY p.expires LIMIT 1),
	EXISTS (SELECT 1 FROM {permits} AS p FORCE INDEX (PRIMARY) WHERE p.hash = h.hash AND p.claim = x'%[2]x' AND p.era = h.since),
	@@autocommit AND NOT @@sql_safe_updates
FROM {table} AS h WHERE hash = x'%[1]x'
