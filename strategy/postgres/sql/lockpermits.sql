-- lockpermits(key, id, owner, ttl, forget, tokens, waited; times in ms, waited is -1 of who does not wait): what a
-- request for a lock does at a key with permits. One row, the grant or what refuses; none if the key has no permits. The
-- rest of the time is -1 as in acquirepermits.sql.
--
-- The lock waits as one that asks for all permits does. It begins no era, so that all claims are void with its grant.
WITH head AS MATERIALIZED (
	SELECT id, owner, last_token, since, expires FROM {table} WHERE hash = sha256($1::bytea) AND {is permits} AND {turn}
	FOR UPDATE
), held AS MATERIALIZED (
	SELECT *, {ahead $7} AS ahead FROM ({judged head}) AS j
), swept AS (
	DELETE FROM {permits} WHERE ctid = ANY (ARRAY(
		SELECT p.ctid FROM {permits} p
		WHERE p.era = (SELECT since FROM held WHERE live) AND p.expires <= now() AND p.hash = sha256($1)
		ORDER BY p.expires LIMIT {sweep}
		FOR UPDATE SKIP LOCKED))
	RETURNING permits
), verdict AS MATERIALIZED (
	SELECT h.*, used - gone AS leaves, rows > 0 AS swept, rows = {sweep} AS more,
		used - gone = 0 AND ahead = 0 AS granted,
		used - gone > 0 AND ahead = 0 AND $7::bigint >= 0 AS bids,
		CASE WHEN $6 > 0 THEN greatest(last_token + 1, micros - $6 + 1) ELSE 0 END AS first,
		CASE WHEN $6 > 0 THEN greatest(last_token + least($6, 32), micros) ELSE last_token END AS last
	FROM held h, (SELECT coalesce(sum(permits), 0)::bigint AS gone, count(*) AS rows FROM swept) AS s
), written AS (
	UPDATE {table} AS l SET
		id = CASE WHEN granted THEN $2::bytea ELSE format('permits %s %s', limited, leaves)::bytea END,
		owner = CASE WHEN granted THEN $3::bytea
			WHEN bids THEN format('%s %s %s %s', {most permits}, micros - 1000 * greatest($7::bigint, 0), micros, {text of id})::bytea
			ELSE l.owner END,
		token = CASE WHEN granted THEN first ELSE 0 END,
		last_token = CASE WHEN granted THEN last ELSE l.last_token END,
		since = CASE WHEN granted THEN at ELSE l.since END,
		expires = CASE WHEN granted THEN at + interval '1 ms' * $4
			WHEN bids THEN greatest(l.expires, at + interval '1 microsecond' * {bid time}) ELSE l.expires END,
		forget = greatest(l.forget, {minute after} $5))
	FROM verdict v WHERE l.hash = sha256($1) AND (granted OR bids OR swept)
)
SELECT granted, CASE WHEN granted THEN first ELSE 0 END, CASE WHEN granted THEN last ELSE 0 END,
	CASE WHEN granted THEN 0 WHEN more THEN -1 ELSE ceil(extract(epoch FROM greatest(interval '1 ms', least(
		(SELECT min(p.expires) FROM {permits} p WHERE p.era = v.since AND p.expires > now() AND p.hash = sha256($1)) - at,
		CASE WHEN leaves = 0 THEN interval '1 microsecond' * bid_left END))) * 1000)::bigint END
FROM verdict v
