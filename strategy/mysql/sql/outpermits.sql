-- outpermits(1 hashes): those of the keys that have permits out.
SELECT h.hash FROM {table} AS h FORCE INDEX (PRIMARY) WHERE h.hash IN (%[1]s) AND {of permits} AND h.expires > {now}
	AND EXISTS (SELECT 1 FROM {permits} AS p FORCE INDEX (ends) WHERE p.hash = h.hash AND p.era = h.since AND p.expires > {now})
