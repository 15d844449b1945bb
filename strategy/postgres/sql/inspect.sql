-- inspect(key): the holder, if there is one; without an id, and for ever, a transaction
-- that has the row locked, which xmax names.
SELECT encode(CASE WHEN leased THEN id ELSE '' END, 'hex'), encode(owner, 'hex'), last_token,
	(extract(epoch FROM greatest(since, 'epoch')) * 1000000)::bigint,
	CASE WHEN leased THEN floor(extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint ELSE -1 END
FROM (SELECT *, xmax, expires > clock_timestamp() AS leased FROM {table} WHERE hash = sha256($1)) AS l
WHERE leased OR EXISTS (SELECT FROM pg_locks WHERE transactionid = l.xmax AND granted)
