-- releasepermits(key, id, unflushed): a row if the claim had permits, or the bid; true if it had not ended.
--
-- The head is locked and judged first, as in acquirepermits.sql: whoever changes permits does so in this order, so
-- that no two wait for each other. A release that is sent twice finds nothing of the claim. The key is free with the
-- last claim, or as long as a bid keeps it: who bids is next. The bid of a claim ends with its release.
--
-- As with free.sql, a commit that does not wait for the log may be forgotten in a crash: the permits are out until
-- their TTL then. What the wait for NOTIFY is bounded by is in release.sql.
--
-- Now and then ({swept}: sweptpermits.sql) some rows that are no longer needed are deleted: those of keys, as in release.sql, and
-- claims whose era is over. In an era that goes on a claim that has ended still counts, so that it
-- stays until an attempt needs its permits.
WITH session AS MATERIALIZED (
	SELECT current_setting('lock_timeout') AS lock_timeout, {turn}
		AND set_config('synchronous_commit', CASE WHEN $3::boolean THEN 'off' ELSE current_setting('synchronous_commit') END, true) <> '' AS bounded
), head AS MATERIALIZED (
	SELECT id, owner, since, expires FROM {table} WHERE hash = sha256($1::bytea) AND {is permits} AND (SELECT bounded FROM session)
	FOR UPDATE
), held AS MATERIALIZED (
	SELECT *, bid_claim = {text of id} AND bid_left > 0 AS bids FROM ({judged head}) AS j WHERE live
), given AS (
	DELETE FROM {permits} p USING held h WHERE p.id = $2::bytea AND {same hash} sha256($1) AND {same era} h.since
	RETURNING p.permits, p.expires
), outcome AS MATERIALIZED (
	SELECT h.*, greatest(used - coalesce(g.permits, 0), 0) AS leaves, coalesce(g.expires > at, false) AS gave,
		CASE WHEN bids THEN 0 ELSE bid_left END AS bid_stays
	FROM held h LEFT JOIN given g ON true
	WHERE bids OR g.permits > 0
), freed AS (
	UPDATE {table} AS l SET
		id = CASE WHEN leaves > 0 OR bid_stays > 0 THEN format('permits %s %s', limited, leaves)::bytea ELSE '' END,
		owner = CASE WHEN bid_stays > 0 THEN l.owner ELSE '' END,
		expires = CASE WHEN leaves > 0 THEN l.expires WHEN bid_stays > 0 THEN at + interval '1 microsecond' * bid_stays ELSE '-infinity' END
	FROM outcome o WHERE l.hash = sha256($1)
	RETURNING l.hash, gave
){swept}
SELECT gave, {notify}, set_config('lock_timeout', (SELECT lock_timeout FROM session), true) FROM freed
