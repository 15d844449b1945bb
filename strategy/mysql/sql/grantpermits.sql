-- grantpermits(1 hash, 2 row, 3 claim, 4 id, 5 owner, 6 ttl, 7 forget after, 8 tokens, 9 permits, 10 limit; times in
-- microseconds): grants permits of a key that nobody has, or of one with that limit and no bid that has enough. Its
-- LAST_INSERT_ID is a grant as in acquirepermits.sql, or 0: then nothing was changed, and acquirepermits.sql judges. It does
-- a part of what that statement does, in less time: most of the time goes to reading the statement.
--
-- It locks the head, then the row, as acquirepermits.sql does, judges their newest versions, and changes both in one
-- transaction. The row is not a claim of the era. Sent twice: a row of that name is not there any more, or it is the
-- claim and so in the era. Sent again with another row: the primary key has the claim already (1062). A lost reply, a
-- dead context, and a process that stops before or behind it: as for acquirepermits.sql.
UPDATE (
	SELECT h.hash, {now} AS at, IF(h.id = x'', 0, {word 3}) + %[9]d AS leaves, IF(h.id = x'', 0, {word 4}) AS earlier,
		IF(h.id = x'', GREATEST({now}, h.since + 1), h.since) AS era, IF(%[8]d > 0, GREATEST(h.last_token + 1, {now}), 0) AS first
	FROM {table} AS h FORCE INDEX (PRIMARY)
	STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = h.hash AND p.claim = x'%[2]x'
	WHERE h.hash = x'%[1]x' AND @@autocommit AND NOT @@sql_safe_updates AND CASE
		WHEN h.id = x'' THEN %[9]d <= %[10]d
		WHEN LEFT(h.id, LENGTH('permits %[10]d ')) <> 'permits %[10]d ' THEN false
		ELSE h.expires > {now} AND h.owner = x'' AND {word 3} + %[9]d <= %[10]d AND p.era <> h.since END
	LIMIT 1 FOR UPDATE
) AS v
STRAIGHT_JOIN {table} AS h FORCE INDEX (PRIMARY) ON h.hash = v.hash
STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = v.hash AND p.claim = x'%[2]x'
SET
	h.token = IF(LAST_INSERT_ID({granted} + LEAST((%[10]d - v.leaves) DIV %[9]d, 15) * {block} + v.first) = 0, h.token, h.token),
	h.id = CONCAT('permits %[10]d ', v.leaves, ' ', v.earlier),
	h.owner = x'',
	h.last_token = IF(%[8]d > 0, v.first + %[8]d - 1, h.last_token),
	h.since = v.era,
	h.expires = GREATEST(h.expires, v.at + %[7]d),
	h.forget = GREATEST(h.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute}),
	p.claim = x'%[3]x',
	p.id = x'%[4]x',
	p.owner = x'%[5]x',
	p.era = v.era,
	p.permits = %[9]d,
	p.token = v.first,
	p.ttl = %[6]d,
	p.since = v.at,
	p.expires = v.at + %[6]d,
	p.forget = GREATEST(p.forget, (v.at + %[7]d) DIV {minute} * {minute} + {minute})
