-- listpermits(key, id, n): the next n claims behind that id that have permits of key, and not ended.
SELECT encode(p.id, 'hex'), encode(p.owner, 'hex'), p.permits, split_part(encode(l.id, 'escape'), ' ', 2)::bigint, p.token,
	(extract(epoch FROM p.since) * 1000000)::bigint, floor(extract(epoch FROM p.expires - clock_timestamp()) * 1000)::bigint
FROM {table} l JOIN {permits} p ON p.hash = l.hash AND p.era = l.since
WHERE l.hash = sha256($1::bytea) AND substr(l.id, 1, 8) = 'permits ' AND p.id || '' > $2::bytea AND p.expires > clock_timestamp()
ORDER BY p.id LIMIT $3
