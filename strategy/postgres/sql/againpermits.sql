-- againpermits(key, id, owner, ttl, forget, tokens, permits, limit): the first and last token of a grant, and how
-- many permits are free after it, of a key whose row is there, with the same limit, room and no bid. No row: it is
-- not so, or the claim has permits, and acquirepermits.sql finds out. Its other parts are what takes time there.
--
-- The head is locked and judged as in acquirepermits.sql. Permits of claims that have ended count as out. The head
-- changes only if the claim's row is new: sent twice, it finds the row, by ON CONFLICT even where its snapshot is too old.
-- A grant whose reply is lost, or that comes late, is as one of acquirepermits.sql: a release names it, or its TTL ends it.
WITH head AS MATERIALIZED (
	SELECT id, owner, last_token, since, expires FROM {table} WHERE hash = sha256($1::bytea) AND {turn}
	FOR UPDATE
), held AS MATERIALIZED (
	SELECT *, CASE WHEN live THEN since ELSE at END AS era,
		CASE WHEN $6 > 0 THEN greatest(last_token + 1, micros - $6 + 1) ELSE 0 END AS first
	FROM ({judged head}) AS j
	WHERE NOT locked AND bid_left = 0 AND (NOT live OR limited = $8::bigint) AND used + $7::bigint <= $8
), taken AS (
	INSERT INTO {permits} AS p (hash, era, id, owner, permits, token, since, expires, forget)
	SELECT sha256($1), era, $2::bytea, $3::bytea, $7, first, at, at + interval '1 ms' * $4, {minute after} $5) FROM held
	ON CONFLICT (id, hash, era) DO NOTHING
	RETURNING p.token
)
UPDATE {table} AS l SET
	id = format('permits %s %s', $8, used + $7)::bytea,
	owner = CASE WHEN live THEN l.owner ELSE '' END,
	last_token = CASE WHEN $6 > 0 THEN greatest(l.last_token + least($6, 32), micros) ELSE l.last_token END,
	since = era,
	expires = greatest(CASE WHEN live THEN l.expires ELSE at END, at + interval '2 ms' * $4),
	forget = greatest(l.forget, {minute after} $5))
FROM held h, taken t WHERE l.hash = sha256($1)
RETURNING t.token, l.last_token, $8 - used - $7
