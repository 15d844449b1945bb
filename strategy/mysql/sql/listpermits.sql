-- listpermits(1 hash, 2 claim, 3 n): the next n claims behind that one that have permits of the key, and have not ended.
SELECT p.claim, p.id, p.owner, p.permits, {word 2}, p.token, p.since, (p.expires - {now}) DIV 1000
FROM {table} AS h FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash AND p.era = h.since
WHERE h.hash = x'%[1]x' AND {of permits} AND h.expires > {now} AND p.hash = x'%[1]x' AND p.claim > x'%[2]x' AND p.expires > {now}
ORDER BY p.claim LIMIT %[3]d
