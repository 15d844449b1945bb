-- releasepermits(1 hash, 2 claim, 3 beginning of claim): gives permits back, or a bid up. Its LAST_INSERT_ID is 2 if
-- the claim had not ended, 1 if it had, or had only the bid, and 0 if it had nothing.
--
-- The head is locked first, as in acquirepermits.sql. Sent twice, or late, it finds that the row is no claim, or is
-- not there; so it does after the claim was forgotten. A lost reply: the permits are free. The key is free with its last
-- claim, or as long as a bid keeps it: its Locker is next.
UPDATE (
	SELECT o.*, IF(acts, IF(counted AND row_expires > at, 2, 1), 0) AS answer
	FROM (
		SELECT a.*, counted OR bids AS acts, used - IF(counted, row_permits, 0) AS leaves, IF(bids, 0, bid_left) AS stays
		FROM (
			SELECT j.*, live AND COALESCE(row_era = since, 0) AS counted, bid_left > 0 AND bid_claim = '%[3]x' AS bids
			FROM ({judged perhaps row}) AS j LIMIT 1
		) AS a LIMIT 1
	) AS o LIMIT 1
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
LEFT JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = v.row_claim
SET
	h.id = CASE WHEN NOT v.acts THEN h.id
		WHEN v.leaves > 0 OR v.stays > 0 THEN CONCAT('permits ', v.limited, ' ', v.leaves, ' ', v.earlier)
		ELSE '' END,
	h.owner = IF(NOT v.acts OR v.stays > 0, h.owner, ''),
	h.token = IF(LAST_INSERT_ID(v.answer) = 0, h.token, h.token),
	h.expires = CASE WHEN NOT v.acts OR v.leaves > 0 THEN h.expires WHEN v.stays > 0 THEN v.at + v.stays ELSE 0 END,
	p.era = IF(v.counted, 0, p.era),
	p.permits = IF(v.counted, 0, p.permits),
	p.id = IF(v.counted, '', p.id),
	p.owner = IF(v.counted, '', p.owner),
	p.forget = IF(v.counted, v.at + {spare}, p.forget)
