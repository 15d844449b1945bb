-- linewait(key, id, owner, ttl, forget, tokens, locker): acquire.sql of a Locker that waits, for a key that has a row. A
-- refusal gives the Locker a place, or keeps the place that it has. The key is granted to the Locker that a release has
-- named ('next ' and its UUID), and, once that is over, to the first place that is live and is not the one named.
WITH mine AS MATERIALIZED (
	SELECT place FROM {line} WHERE hash = sha256($1::bytea) AND locker = $7::text
), seen AS MATERIALIZED (
	SELECT id, owner, expires FROM {table} WHERE hash = sha256($1)
), free AS MATERIALIZED (
	SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros FROM {table} l
	WHERE hash = sha256($1) AND (id = $2 OR id = convert_to('next ' || $7, 'UTF8') OR expires <= clock_timestamp()
		AND NOT EXISTS (SELECT FROM {line} o WHERE o.hash = sha256($1) AND o.expires > clock_timestamp()
			AND o.place < coalesce((SELECT place FROM mine), 9223372036854775807) AND convert_to('next ' || o.locker, 'UTF8') <> l.id))
	FOR UPDATE SKIP LOCKED
), granted AS (
	UPDATE {table} AS l SET
		id = $2,
		owner = $3,
		token = CASE WHEN l.id = $2 THEN l.token WHEN $6 > 0 THEN greatest(l.last_token + 1, micros - $6 + 1) ELSE 0 END,
		last_token = CASE WHEN l.id <> $2 AND $6 > 0 THEN greatest(l.last_token + least($6, 32), micros) ELSE l.last_token END,
		since = CASE WHEN l.id = $2 THEN l.since ELSE clock_timestamp() END,
		expires = CASE WHEN l.id = $2 THEN greatest(l.expires, clock_timestamp() + interval '1 ms' * $4) ELSE clock_timestamp() + interval '1 ms' * $4 END,
		forget = greatest(l.forget, {minute after} $5))
	FROM free WHERE l.hash = sha256($1)
	RETURNING token, last_token
), gone AS (
	DELETE FROM {line} WHERE hash = sha256($1) AND locker = $7 AND EXISTS (SELECT FROM granted)
), stays AS (
	INSERT INTO {line} (hash, locker, expires) SELECT sha256($1), $7, clock_timestamp() + interval '3 s' WHERE NOT EXISTS (SELECT FROM granted)
	ON CONFLICT (hash, locker) DO UPDATE SET expires = excluded.expires
)
SELECT true, token, last_token, 0::bigint, '', false FROM granted
UNION ALL
SELECT false, 0, 0, greatest(0, ceil(extract(epoch FROM expires - clock_timestamp()) * 1000))::bigint, encode(owner, 'hex'), {is permits} FROM seen
WHERE NOT EXISTS (SELECT FROM granted)
