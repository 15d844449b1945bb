-- countpermits(1 hash): the row of a key, the permits of claims that have ended and still count, and what the last claim has left.
SELECT id, since, last_token, expires > {now},
	COALESCE((SELECT SUM(p.permits) FROM {permits} AS p FORCE INDEX (ends) WHERE p.hash = h.hash AND p.era = h.since AND p.expires <= {now}), 0),
	COALESCE((SELECT p.expires FROM {permits} AS p FORCE INDEX (ends) WHERE p.hash = h.hash AND p.era = h.since ORDER BY p.expires DESC LIMIT 1) - {now}, 0) DIV 1000
FROM {table} AS h WHERE hash = x'%[1]x'
