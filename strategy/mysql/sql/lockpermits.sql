-- lockpermits(1 hash, 2 id, 3 owner, 4 ttl, 5 forget after, 6 tokens, 7 waited, 8 waits, 9 Locker, 10 beginning of claim;
-- times in microseconds): what an attempt to lock does at a key with permits. Its LAST_INSERT_ID is 0 if the
-- key has none any more, else as in acquire.sql of a grant, and as in acquirepermits.sql of a refusal.
--
-- A lock waits as a request for all permits does. Its grant ends the era. A request that is
-- sent twice finds a lock instead of permits, and acquire.sql finds that it is its own.
UPDATE (
	SELECT hash, at, since, NOT live OR used = 0 AND ahead = 0 AS granted, live AND used > 0 AND ahead = 0 AND %[8]t AS bids,
		IF(%[6]d > 0, GREATEST(last_token + 1, at), 0) AS first
	FROM (
		SELECT h.hash, h.since, h.last_token, {now} AS at, {live} AS live, {used} AS used, {ahead 9 7} AS ahead
		FROM {table} AS h FORCE INDEX (PRIMARY) WHERE h.hash = x'%[1]x' AND {of permits} LIMIT 1 FOR UPDATE
	) AS head LIMIT 1
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
SET
	h.token = IF(LAST_INSERT_ID(IF(@@autocommit, IF(v.granted, {granted} + %[6]d * {block} + v.first, {refused} + v.bids * {bids}), {manual})) = 0, h.token, IF(v.granted, v.first, h.token)),
	h.id = IF(v.granted, x'%[2]x', h.id),
	h.owner = CASE WHEN v.granted THEN x'%[3]x'
		WHEN v.bids THEN CONCAT({most permits}, ' ', v.at - %[7]d, ' ', v.at, ' %[9]x %[10]x')
		ELSE h.owner END,
	h.last_token = IF(v.granted AND %[6]d > 0, v.first + %[6]d - 1, h.last_token),
	h.ttl = IF(v.granted, %[4]d, h.ttl),
	h.since = IF(v.granted, GREATEST(v.at, v.since + 1), h.since),
	h.expires = IF(v.granted, v.at + %[4]d, h.expires),
	h.forget = IF(v.granted, GREATEST(h.forget, (v.at + %[5]d) DIV {minute} * {minute} + {minute}), h.forget)
