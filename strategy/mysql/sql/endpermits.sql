-- endpermits(1 hash, 2 era, 3 claims): forgets those of the claims that have ended, if the era goes on. Their permits are not out
-- any more. Sent twice, it finds no such claim. The head is locked first, so that each claim is subtracted once. A
-- claim that was renewed meanwhile stays.
UPDATE (
	SELECT e.hash, MAX(e.limited) AS limited, MAX(e.used) - SUM(e.permits) AS leaves, MAX(e.earlier) AS earlier
	FROM (
		SELECT h.hash, {word 2} AS limited, {word 3} AS used, {word 4} AS earlier, p.permits
		FROM {table} AS h FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash
		WHERE h.hash = x'%[1]x' AND {of permits} AND h.since = %[2]d AND h.expires > {now}
			AND p.hash = x'%[1]x' AND p.claim IN (%[3]s) AND p.era = %[2]d AND p.expires <= {now}
		LIMIT {ends} FOR UPDATE
	) AS e GROUP BY e.hash
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim IN (%[3]s) AND p.era = %[2]d AND p.expires <= {now}
SET
	h.id = CONCAT('permits ', v.limited, ' ', v.leaves, ' ', v.earlier),
	p.era = 0, p.permits = 0, p.id = x'', p.owner = x'', p.forget = {now} + {spare}
