-- acquire(key, id, owner, ttl, forget, tokens; times in ms): one row, the grant or who
-- holds, and whether as permits; or none if another transaction is at the row.
--
-- A refusal locks and writes nothing. SKIP LOCKED refuses beside an attempt that is being
-- granted, a release that is not through, or an application: no attempt queues for a row. Of
-- attempts at the same time one has the row then, and judged its newest version under the
-- lock. Where the snapshot has no row, or one that a release may be sweeping away, INSERT
-- waits for the transaction that is at it, and ON CONFLICT judges what there is then. An id that has the row already keeps its token, and no time it has
-- left is taken away. (If its lease ran out and no other claim came in between, it is granted again
-- just as well.)
-- Tokens end at the clock, as far as they are new, or are 32 ahead at most: a row is forgotten with its last
-- token, and the next one begins at the clock.
WITH seen AS MATERIALIZED (
	SELECT id, owner, expires, forget FROM {table} WHERE hash = sha256($1)
), free AS MATERIALIZED (
	SELECT FROM {table} WHERE hash = sha256($1) AND (id = $2 OR expires <= clock_timestamp())
	FOR UPDATE SKIP LOCKED
), granted AS (
	INSERT INTO {table} AS l (key, id, owner, token, last_token, since, expires, forget)
	SELECT $1, $2, $3, least($6, 1) * micros, least($6, 1) * (micros + least($6, 32) - 1), clock_timestamp(),
		clock_timestamp() + interval '1 ms' * $4, {minute after} $5)
	FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) AS clock
	WHERE (EXISTS (SELECT FROM free) OR NOT EXISTS (SELECT FROM seen WHERE forget >= now())) AND {patience}
	ON CONFLICT (hash) DO UPDATE SET
		id = excluded.id,
		owner = excluded.owner,
		token = CASE WHEN l.id = excluded.id THEN l.token
			WHEN $6 > 0 THEN greatest(l.last_token + 1, excluded.token - $6 + 1) ELSE 0 END,
		last_token = CASE WHEN l.id <> excluded.id AND $6 > 0
			THEN greatest(l.last_token + least($6, 32), excluded.token) ELSE l.last_token END,
		since = CASE WHEN l.id = excluded.id THEN l.since ELSE clock_timestamp() END,
		expires = greatest(l.expires, clock_timestamp() + interval '1 ms' * $4),
		forget = greatest(l.forget, excluded.forget)
	WHERE l.id = excluded.id OR l.expires <= clock_timestamp()
	RETURNING token, last_token
)
SELECT true, token, last_token, 0::bigint, '', false FROM granted
UNION ALL
SELECT false, 0, 0, ceil(extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint, encode(owner, 'hex'), {is permits} FROM seen
WHERE id <> $2 AND expires > clock_timestamp() AND NOT EXISTS (SELECT FROM granted)
