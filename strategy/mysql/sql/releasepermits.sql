-- releasepermits(1 hash, 2 claim, 3 beginning of claim): gives permits back, or a bid up. Its LAST_INSERT_ID is 2 if
-- the claim had not ended, 1 if it had, or had only the bid, 0 if it had nothing, and {manual} without autocommit.
--
-- The head is locked first, as in acquirepermits.sql. Sent twice, or late, it finds that the row is no claim, or is
-- not there; so it does after the claim was forgotten. A lost reply: the permits are free. The key is free with its last
-- claim, or as long as a bid keeps it: its Locker is next.
UPDATE (
	SELECT hash, at, limited, earlier, counted, row_claim, used - IF(counted, row_permits, 0) AS leaves,
		IF(bids, 0, bid_left) AS stays, IF(counted AND lasts, 2, counted OR bids) AS answer
	FROM (
		SELECT h.hash, {now} AS at, {word 2} AS limited, {word 3} AS used, {word 4} AS earlier,
			{bid left} AS bid_left, {bid left} > 0 AND {bid 5} = '%[3]x' AS bids,
			COALESCE(p.era = h.since, 0) AS counted, p.claim AS row_claim, p.permits AS row_permits, p.expires > {now} AS lasts
		FROM {table} AS h FORCE INDEX (PRIMARY)
		LEFT JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash AND p.claim = x'%[2]x'
		WHERE h.hash = x'%[1]x' AND {live} LIMIT 1 FOR UPDATE
	) AS read_rows LIMIT 1
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
LEFT JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = v.row_claim AND v.counted
SET
	h.token = IF(LAST_INSERT_ID(IF(@@autocommit, v.answer, {manual})) = 0, h.token, h.token),
	h.id = CASE WHEN v.answer = 0 THEN h.id
		WHEN v.leaves > 0 OR v.stays > 0 THEN CONCAT('permits ', v.limited, ' ', v.leaves, ' ', v.earlier)
		ELSE x'' END,
	h.owner = IF(v.answer = 0 OR v.stays > 0, h.owner, x''),
	h.expires = CASE WHEN v.answer = 0 OR v.leaves > 0 THEN h.expires WHEN v.stays > 0 THEN v.at + v.stays ELSE 0 END,
	p.era = 0
