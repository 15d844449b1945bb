-- heldpermits(1 pairs of hash and claim): what those that have permits have left, their era, and whether the head
-- lasts as long. A claim whose era is over is not among them.
SELECT p.hash, p.claim, p.expires - {now}, p.era, h.expires >= p.expires
FROM {permits} AS p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = p.hash AND h.since = p.era
WHERE (%[1]s) AND p.era > 0 AND p.expires > {now} AND {of permits} AND h.expires > {now}
