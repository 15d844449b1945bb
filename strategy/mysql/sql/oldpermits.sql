-- oldpermits(): some rows that nobody needs: no claims, or claims whose era is over. A claim that has ended in an era that
-- goes on still counts. An era that is over never goes on again, nor does a row become a claim of it: so it
-- is enough to look without a lock.
SELECT p.hash, p.claim, p.era FROM {permits} AS p FORCE INDEX (forget)
LEFT JOIN {table} AS h ON h.hash = p.hash AND h.since = p.era AND {of permits} AND h.expires > {now}
WHERE p.forget < {now} AND p.expires < {now} AND h.hash IS NULL
ORDER BY p.forget LIMIT 100
