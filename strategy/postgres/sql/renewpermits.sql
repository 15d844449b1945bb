-- renewpermits(keys, ids, ttls, forgets): a row (number, renewed, token) for each claim that has its permits. A row
-- that another transaction has locked is passed by, and its claim is to try again; a claim that is renewed alone
-- waits for it instead.
--
-- The head of a key is not to expire before a claim does: see judged.sql. It is locked, and made to last a TTL
-- longer than needed, where it would (short, longer). Mostly that is not so, and the renewals of a key do
-- not wait for those who change its permits. A claim that has not ended keeps the head from being anything else meanwhile, as what
-- sweeps it locks it first.
WITH claims AS MATERIALIZED (
	SELECT n, sha256(key) AS hash, id, ttl, forget
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS c (key, id, ttl, forget, n)
), short AS MATERIALIZED (
	SELECT l.hash, c.ttl, c.forget FROM {table} l JOIN (
		SELECT hash, max(ttl) AS ttl, max(forget) AS forget FROM claims GROUP BY hash
	) AS c ON l.hash = c.hash
	WHERE {is permits} AND l.expires > clock_timestamp() AND l.expires < clock_timestamp() + interval '1 ms' * c.ttl AND {turn}
	FOR UPDATE OF l {skip}
), longer AS (
	UPDATE {table} l SET
		expires = greatest(l.expires, clock_timestamp() + interval '2 ms' * s.ttl),
		forget = greatest(l.forget, {minute after} s.forget))
	FROM short s WHERE l.hash = s.hash
	RETURNING l.hash
), eras AS MATERIALIZED (
	SELECT c.*, l.since AS era, clock_timestamp() AS at
	FROM claims c JOIN {table} l ON l.hash = c.hash LEFT JOIN longer g ON g.hash = c.hash
	WHERE substr(l.id, 1, 8) = 'permits ' AND (g.hash IS NOT NULL OR l.expires >= clock_timestamp() + interval '1 ms' * c.ttl)
), mine AS MATERIALIZED (
	SELECT e.* FROM eras e JOIN {permits} p ON p.id = e.id AND {same hash} e.hash AND {same era} e.era
	WHERE p.expires - e.at > interval '0'
	FOR UPDATE OF p {skip}
), renewed AS (
	UPDATE {permits} p SET
		expires = greatest(p.expires, m.at + interval '1 ms' * m.ttl),
		forget = greatest(p.forget, {minute after} m.forget))
	FROM mine m WHERE p.id = m.id AND {same hash} m.hash AND {same era} m.era
	RETURNING m.n, p.token
)
SELECT c.n, r.n IS NOT NULL, coalesce(r.token, 0)
FROM claims c LEFT JOIN renewed r ON r.n = c.n
WHERE r.n IS NOT NULL OR EXISTS (
	SELECT FROM {table} l JOIN {permits} p ON {same hash} l.hash AND {same era} l.since
	WHERE l.hash = c.hash AND substr(l.id, 1, 8) = 'permits ' AND p.id = c.id AND p.expires > clock_timestamp())
