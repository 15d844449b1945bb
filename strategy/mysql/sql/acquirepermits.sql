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
--   {manual}   without autocommit, under which nothing is kept, or with sql_safe_updates, under which no batch is renewed
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
	SELECT hash, at, live, limited, used, earlier, locked, bid_own, row_claim,
		counted AND row_claim = x'%[3]x' AS own,
		NOT locked AND used + %[9]d + ahead <= %[10]d AS fits,
		NOT counted AND NOT locked AND used + %[9]d + ahead <= %[10]d AND NOT @@sql_safe_updates AS fresh,
		NOT locked AND ahead = 0 AND %[12]t AS bids,
		live AND limited <> %[10]d AS differs,
		GREATEST(%[10]d - used - ahead, 0) AS free,
		IF(live, since, GREATEST(at, since + 1)) AS era,
		IF(counted AND row_claim = x'%[3]x', row_token, IF(%[8]d > 0, GREATEST(last_token + 1, at), 0)) AS first
	FROM (
		SELECT h.hash, h.since, h.last_token, {now} AS at, {live} AS live, {as lock} AS locked,
			{limited} AS limited, {used} AS used, {earlier} AS earlier, {live} AND {bid 4} = '%[13]x' AS bid_own,
			{ahead 13 11} AS ahead,
			{live} AND p.era = h.since AS counted, p.claim AS row_claim, p.token AS row_token
		FROM {table} AS h FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash AND p.claim = x'%[2]x'
		WHERE h.hash = x'%[1]x' LIMIT 1 FOR UPDATE
	) AS read_rows LIMIT 1
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
LEFT JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = v.row_claim AND {grants}
SET
	h.token = IF(LAST_INSERT_ID(IF(@@autocommit AND NOT @@sql_safe_updates, CASE
		WHEN {grants} THEN {granted} + v.differs * {differs} + v.own * {own} + LEAST(GREATEST(%[10]d - v.used - IF(v.own, 0, %[9]d), 0) DIV %[9]d, 15) * {block} + v.first
		WHEN v.fits THEN 1
		ELSE {refused} + v.differs * {differs} + v.bids * {bids} + v.locked * {locked} + v.free END, {manual})) = 0, h.token, h.token),
	h.id = IF({writes}, CONCAT('permits ', %[10]d, ' ', v.used + IF(v.fresh, %[9]d, 0), ' ', IF(v.differs, v.limited, v.earlier)), h.id),
	h.owner = CASE
		WHEN NOT {writes} THEN h.owner
		WHEN v.bids AND NOT {grants} THEN CONCAT(%[9]d, ' ', v.at - %[11]d, ' ', v.at, ' %[13]x %[14]x')
		WHEN NOT v.live OR {grants} AND v.bid_own THEN x''
		ELSE h.owner END,
	h.last_token = IF(v.fresh AND %[8]d > 0, v.first + %[8]d - 1, h.last_token),
	h.since = IF({writes}, v.era, h.since),
	h.expires = IF({grants}, GREATEST(h.expires, v.at + %[7]d), h.expires),
	h.forget = IF({writes}, GREATEST(h.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute}), h.forget),
	p.claim = x'%[3]x',
	p.id = x'%[4]x',
	p.owner = x'%[5]x',
	p.era = v.era,
	p.permits = IF(v.own, p.permits, %[9]d),
	p.token = v.first,
	p.ttl = %[6]d,
	p.since = IF(v.own, p.since, v.at),
	p.expires = IF(v.own, GREATEST(p.expires, v.at + %[6]d), v.at + %[6]d),
	p.forget = GREATEST(p.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute})
