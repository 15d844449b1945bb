-- renew(keys, ids, ttls, forgets): a row (number, renewed, 0) for each claim that holds its
-- key. A row that another transaction has locked is passed by, and its claim told to try again: no
-- key holds up the others, and no two batches each other.
--
-- FOR UPDATE judges the newest version, so that a claim that was replaced meanwhile is not
-- renewed; the last SELECT sees it as the snapshot has it, and the next try reports the loss.
WITH claims AS MATERIALIZED (
	SELECT n, sha256(key) AS hash, id, ttl, forget
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS c (key, id, ttl, forget, n)
), mine AS MATERIALIZED (
	SELECT c.* FROM claims c JOIN {table} l ON l.hash = c.hash AND l.id = c.id
	WHERE l.expires > clock_timestamp()
	FOR UPDATE OF l SKIP LOCKED
), renewed AS (
	UPDATE {table} l SET
		expires = greatest(l.expires, clock_timestamp() + interval '1 ms' * m.ttl),
		forget = greatest(l.forget, {minute after} m.forget))
	FROM mine m WHERE l.hash = m.hash
	RETURNING m.n
)
SELECT c.n, r.n IS NOT NULL, 0::bigint
FROM claims c LEFT JOIN renewed r USING (n)
WHERE r.n IS NOT NULL OR EXISTS (SELECT FROM {table} l WHERE l.hash = c.hash AND l.id = c.id AND l.expires > clock_timestamp())
