-- acquirepermits(1 hash, 2 row, 3 claim, 4 id, 5 owner, 6 ttl, 7 forget after, 8 tokens, 9 permits, 10 limit, 11 waited,
-- 12 may bid, 13 Locker, 14 beginning of claim; times in microseconds): asks for permits.
--
-- row is the claim of a row that is no claim yet, or of the claim's own row. Both rows exist, so that the statement
-- inserts nothing, and no two wait for each other's gaps. It locks the head, then the row, and judges their newest
-- versions; what it changes in both is one transaction.
--
-- The answer is the statement's LAST_INSERT_ID:
--   0          one of the rows does not exist
--   1          the row has another claim's permits
--   {manual}   without autocommit, under which nothing is kept
--   {granted} + ...   a grant: its token, its tokens are those asked for, or one ({own}) if it was granted before;
--              by {block}: how many requests like it would be granted, at most 15; {differs}: the limit was another one
--   {refused} + ...   a refusal: the permits that are free; {locked}: as a lock has the key; {bids}: they are kept for it; {differs}
--
-- Sent twice: its row is in the era, so that its permits are not added again. Its end only moves on. Sent
-- again with another row: the primary key has the claim already, and the server rolls the statement back (1062). A claim that has ended
-- and still counts is granted again: nobody else was granted its permits.
-- A lost reply: the claim's permits are out until its release, or its TTL. A process that stops before
-- it is sent leaves a row that is no claim.
-- Ends are counted from the time at which the statement arrived: a holder that waited for the head has less, and
-- its Locker counts so, too.
UPDATE (
	SELECT d.*, CASE
		WHEN unusable THEN 1
		WHEN granted THEN {granted} + differs * {differs} + own * {own} + LEAST(GREATEST(%[10]d - leaves, 0) DIV %[9]d, 15) * {block} + IF(own, row_token, first)
		ELSE {refused} + differs * {differs} + bids * {bids} + locked * {locked} + GREATEST(%[10]d - used - ahead, 0) END AS answer
	FROM (
		SELECT c.*, granted AND NOT own AS fresh, used + IF(granted AND NOT own, %[9]d, 0) AS leaves,
			NOT locked AND NOT unusable AND (granted OR bids OR differs) AS writes,
			IF(live, since, GREATEST(at, since + 1)) AS era,
			IF(%[8]d > 0, GREATEST(last_token + 1, at), 0) AS first
		FROM (
			SELECT b.*, own OR fits AND NOT counted AS granted, fits AND counted AND NOT own AS unusable
			FROM (
				SELECT a.*, counted AND row_claim = x'%[3]x' AS own, NOT locked AND used + %[9]d + ahead <= %[10]d AS fits,
					NOT locked AND ahead = 0 AND %[12]t AS bids, live AND limited <> %[10]d AS differs
				FROM (
					SELECT j.*, live AND row_era = since AS counted,
						CASE WHEN bid_left > 0 AND bid_of <> '%[13]x' AND bid_since <= at - %[11]d THEN bids_for ELSE 0 END AS ahead
					FROM ({judged row}) AS j LIMIT 1
				) AS a LIMIT 1
			) AS b LIMIT 1
		) AS c LIMIT 1
	) AS d LIMIT 1
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = v.row_claim
SET
	h.token = IF(LAST_INSERT_ID(IF(@@autocommit, v.answer, {manual})) = 0, h.token, h.token),
	h.id = IF(v.writes, CONCAT('permits ', %[10]d, ' ', v.leaves, ' ', IF(v.differs, v.limited, v.earlier)), h.id),
	h.owner = CASE
		WHEN NOT v.writes THEN h.owner
		WHEN v.bids AND NOT v.granted THEN CONCAT(%[9]d, ' ', v.at - %[11]d, ' ', v.at, ' %[13]x %[14]x')
		WHEN NOT v.live OR v.granted AND v.bid_of = '%[13]x' THEN ''
		ELSE h.owner END,
	h.last_token = IF(v.fresh AND %[8]d > 0, v.first + %[8]d - 1, h.last_token),
	h.since = IF(v.writes, v.era, h.since),
	h.expires = IF(v.granted, GREATEST(h.expires, v.at + %[7]d), h.expires),
	h.forget = IF(v.writes, GREATEST(h.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute}), h.forget),
	p.claim = IF(v.fresh, x'%[3]x', p.claim),
	p.id = IF(v.fresh, x'%[4]x', p.id),
	p.owner = IF(v.fresh, x'%[5]x', p.owner),
	p.era = IF(v.fresh, v.era, p.era),
	p.permits = IF(v.fresh, %[9]d, p.permits),
	p.token = IF(v.fresh, v.first, p.token),
	p.ttl = IF(v.fresh, %[6]d, p.ttl),
	p.since = IF(v.fresh, v.at, p.since),
	p.expires = IF(v.granted, IF(v.own, GREATEST(p.expires, v.at + %[6]d), v.at + %[6]d), p.expires),
	p.forget = IF(v.granted, GREATEST(p.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute}), p.forget)
