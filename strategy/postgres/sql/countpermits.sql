-- countpermits(key): the limit that was named last, how many permits are out of claims that have not ended, when
-- the era began, the last token, when its last claim ends, and whether a lock has the key. No row: it is free.
WITH seen AS MATERIALIZED (
	SELECT id, owner, last_token, since, expires FROM {table} WHERE hash = sha256($1::bytea)
)
SELECT limited, used - coalesce((SELECT sum(p.permits) FROM {permits} p
		WHERE p.era = j.since AND p.expires <= now() AND p.hash = sha256($1)), 0)::bigint,
	(extract(epoch FROM since) * 1000000)::bigint, last_token,
	coalesce(floor(extract(epoch FROM (SELECT max(p.expires) FROM {permits} p WHERE p.hash = sha256($1) AND p.era = j.since) - at) * 1000), 0)::bigint,
	locked
FROM ({judged seen}) AS j WHERE live OR locked
