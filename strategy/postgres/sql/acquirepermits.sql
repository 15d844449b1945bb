-- acquirepermits(key, id, owner, ttl, forget, tokens, permits, limit, waited; times in ms, waited is -1 of who does
-- not wait): one row, the grant or what refuses. No row: somebody was faster in a way that this statement cannot
-- judge, and it is sent again. So it is where it has forgotten as many claims as it may: then the rest of the
-- time is -1.
--
-- The key's row is the head of the permits: see judged.sql. Whoever changes permits has it locked, so that
-- each judges its newest version. What the statement reads of claims is as old as its snapshot, hence
--   - how many are out is in the head, and is not counted;
--   - a claim that has ended is subtracted once this statement has deleted its row, which it locks and judges
--     again before;
--   - a claim that is there is found by the snapshot (own, kept), or by ON CONFLICT where there is room. Where
--     there is none, and the head has changed since the snapshot (stale), its own first sending may be what took
--     the room: the driver looks again, by renewpermits.sql.
-- A claim counts once, as its permits are added to the head only if its row is new.
--
-- refused is a refusal by the snapshot alone, which locks and writes nothing: with nothing to forget, no bid to
-- note and the limit as it was.
--
-- Sent twice, it finds its claim. A claim that has ended is granted again if it was not forgotten: nobody was
-- granted its permits. Tokens are those of acquire.sql.
WITH seen AS MATERIALIZED (
	SELECT id, owner, last_token, since, expires, xmin::text AS version FROM {table} WHERE hash = sha256($1::bytea)
), refused AS MATERIALIZED (
	SELECT * FROM (
		SELECT *, {bids} AS bids,
			CASE WHEN live THEN (SELECT min(p.expires) FROM {permits} p WHERE p.hash = sha256($1) AND p.era = s.since) END AS first_end,
			live AND EXISTS (SELECT FROM {permits} p WHERE p.id = $2::bytea AND {same hash} sha256($1) AND {same era} s.since) AS own
		FROM (SELECT *, {ahead $9} AS ahead FROM ({judged seen}) AS j) AS s
	) AS looked
	WHERE locked OR live AND NOT own AND NOT bids AND limited = $8::bigint AND used + $7::bigint + ahead > $8
		AND coalesce(first_end > now(), true)
), made AS (
	INSERT INTO {table} (key, id, last_token, since, expires, forget)
	SELECT $1, format('permits %s %s', $8::bigint, $7::bigint)::bytea, least($6, 1) * (micros + least($6, 32) - 1), at,
		at + interval '2 ms' * $4, {minute after} $5)
	FROM (SELECT at, (extract(epoch FROM at) * 1000000)::bigint AS micros FROM (SELECT clock_timestamp() AS at) AS c) AS clock
	WHERE NOT EXISTS (SELECT FROM seen) AND {turn}
	ON CONFLICT (hash) DO NOTHING
	RETURNING since, CASE WHEN $6 > 0 THEN last_token - least($6, 32) + 1 ELSE 0 END AS token, last_token
), made_claim AS (
	INSERT INTO {permits} (hash, era, id, owner, permits, token, since, expires, forget)
	SELECT sha256($1), since, $2, $3::bytea, $7, token, since, since + interval '1 ms' * $4, {minute after} $5) FROM made
), head AS MATERIALIZED (
	SELECT id, owner, last_token, since, expires, xmin::text AS version FROM {table}
	WHERE hash = sha256($1) AND NOT EXISTS (SELECT FROM refused) AND {turn}
	FOR UPDATE
), held AS MATERIALIZED (
	SELECT *, {bids} AS bids, used + $7 + ahead <= $8 AS fits,
		live AND EXISTS (SELECT FROM {permits} p WHERE p.id = $2 AND {same hash} sha256($1) AND {same era} s.since) AS own
	FROM (SELECT *, {ahead $9} AS ahead FROM ({judged head}) AS j) AS s
), swept AS (
	DELETE FROM {permits} WHERE ctid = ANY (ARRAY(
		SELECT p.ctid FROM {permits} p
		WHERE p.era = (SELECT since FROM held WHERE live AND NOT own AND NOT fits) AND p.expires <= now() AND p.hash = sha256($1)
		ORDER BY p.expires LIMIT {sweep}
		FOR UPDATE SKIP LOCKED))
	RETURNING permits
), verdict AS MATERIALIZED (
	SELECT h.*, used - gone AS unswept, rows > 0 AS swept, rows = {sweep} AS more,
		own OR NOT locked AND used - gone + $7 + ahead <= $8 AS room,
		CASE WHEN live THEN since ELSE at END AS era,
		CASE WHEN $6 > 0 THEN greatest(last_token + 1, micros - $6 + 1) ELSE 0 END AS first
	FROM held h, (SELECT coalesce(sum(permits), 0)::bigint AS gone, count(*) AS rows FROM swept) AS s
), kept AS (
	UPDATE {permits} p SET expires = greatest(p.expires, v.at + interval '1 ms' * $4), forget = greatest(p.forget, {minute after} $5))
	FROM verdict v WHERE v.own AND p.id = $2 AND {same hash} sha256($1) AND {same era} v.era
	RETURNING p.token
), taken AS (
	INSERT INTO {permits} AS p (hash, era, id, owner, permits, token, since, expires, forget)
	SELECT sha256($1), era, $2, $3, $7, first, at, at + interval '1 ms' * $4, {minute after} $5) FROM verdict WHERE room AND NOT own
	ON CONFLICT (id, hash, era) DO UPDATE SET expires = greatest(p.expires, excluded.expires), forget = greatest(p.forget, excluded.forget)
	RETURNING p.token, p.since
), outcome AS MATERIALIZED (
	SELECT v.*, g.token, g.token IS NOT NULL AS granted, coalesce(g.new, false) AS new,
		unswept + CASE WHEN g.new THEN $7 ELSE 0 END AS leaves,
		CASE WHEN g.new AND $6 > 0 THEN greatest(last_token + least($6, 32), micros) ELSE last_token END AS leaves_token
	FROM verdict v LEFT JOIN (
		SELECT token, false AS new FROM kept
		UNION ALL
		SELECT t.token, t.since = w.at FROM taken t, verdict w
	) AS g ON true
	WHERE g.token IS NOT NULL OR NOT v.room
), written AS (
	UPDATE {table} AS l SET
		id = format('permits %s %s', $8, leaves)::bytea,
		owner = CASE WHEN bids AND NOT granted THEN format('%s %s %s %s', $7, micros - 1000 * greatest($9::bigint, 0), micros, {text of id})::bytea
			WHEN granted AND {own bid} OR NOT live THEN '' ELSE l.owner END,
		last_token = leaves_token,
		since = era,
		expires = greatest(CASE WHEN live THEN l.expires ELSE at END,
			CASE WHEN granted THEN at + interval '2 ms' * $4 ELSE at END,
			CASE WHEN bids AND NOT granted THEN at + interval '1 microsecond' * {bid time} ELSE at END),
		forget = greatest(l.forget, {minute after} $5))
	FROM outcome o
	WHERE l.hash = sha256($1) AND NOT locked AND (granted OR swept OR bids OR limited <> $8)
)
SELECT true, token, last_token, 0::bigint, '', $8 - $7, 0::bigint, false, false FROM made
UNION ALL
SELECT granted, coalesce(token, 0), CASE WHEN new THEN leaves_token ELSE coalesce(token, 0) END,
	CASE WHEN granted THEN 0 WHEN more THEN -1 ELSE ceil(extract(epoch FROM CASE
		WHEN locked THEN expires - at
		ELSE greatest(interval '1 ms', least(first_end - at, CASE WHEN ahead > 0 AND leaves + $7 <= $8
			THEN interval '1 microsecond' * bid_left END)) END) * 1000)::bigint END,
	CASE WHEN locked THEN encode(owner, 'hex') ELSE '' END,
	CASE WHEN locked THEN 0 ELSE greatest($8 - leaves - CASE WHEN granted THEN 0 ELSE ahead END, 0) END,
	CASE WHEN live AND limited <> $8 THEN limited ELSE 0 END,
	bids AND NOT granted AND NOT locked, stale
FROM (
	SELECT false AS granted, NULL::bigint AS token, false AS new, 0::bigint AS leaves_token, false AS more, locked, expires, at,
		first_end, ahead, used AS leaves, bid_left, owner, live, limited, bids, false AS stale
	FROM refused
	UNION ALL
	SELECT granted, token, new, leaves_token, more, locked, expires, at,
		CASE WHEN NOT granted THEN (SELECT min(p.expires) FROM {permits} p WHERE p.era = o.era AND p.expires > now() AND p.hash = sha256($1)) END,
		ahead, leaves, bid_left, owner, live, limited, bids,
		NOT granted AND NOT locked AND version IS DISTINCT FROM (SELECT version FROM seen)
	FROM outcome o
) AS answer
