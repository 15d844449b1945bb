-- again(key, id, owner, ttl, forget, tokens; times in ms): the first and last token of a grant of a key
-- whose row is there and free. No row: it is not there, not free, or another transaction is at it, and
-- acquire.sql finds out. Its INSERT and its refusal are what takes time there.
--
-- free locks the row and judges its newest version. So UPDATE waits for nobody, and the version that
-- it changes is the one that was judged, however old the snapshot's is. The tokens are those of acquire.sql.
WITH free AS MATERIALIZED (
	SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros FROM {table}
	WHERE hash = sha256($1) AND (id = $2 OR expires <= clock_timestamp())
	FOR UPDATE SKIP LOCKED
)
UPDATE {table} AS l SET
	id = $2,
	owner = $3,
	token = CASE WHEN l.id = $2 THEN l.token WHEN $6 > 0 THEN greatest(l.last_token + 1, micros - $6 + 1) ELSE 0 END,
	last_token = CASE WHEN l.id <> $2 AND $6 > 0 THEN greatest(l.last_token + least($6, 32), micros) ELSE l.last_token END,
	since = CASE WHEN l.id = $2 THEN l.since ELSE clock_timestamp() END,
	expires = greatest(l.expires, clock_timestamp() + interval '1 ms' * $4),
	forget = greatest(l.forget, {minute after} $5))
FROM free WHERE l.hash = sha256($1)
RETURNING token, last_token
