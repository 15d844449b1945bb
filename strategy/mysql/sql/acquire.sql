-- acquire(1 hash, 2 key, 3 id, 4 owner, 5 ttl, 6 forget after, 7 tokens; times in microseconds).
--
-- The answer is the statement's LAST_INSERT_ID: 2^62 + tokens * 2^53 + token of a grant, or the
-- milliseconds that the holder has left, and {refused} besides if the key has permits. Where a grant could not be kept it is 2^61, without
-- autocommit, or 0, with sql_safe_updates, under which no batch is renewed.
--
-- A row that exists is locked first and judged by its newest version, so that of attempts at the
-- same time one is granted, and the others see its id. An id that has the row already keeps its
-- token, and no time it has left is taken away. (If its lease ran out and no other claim came in
-- between, it is granted again just as well.)
--
-- Assignments are made from the top, and see what those above have assigned, or, with
-- SIMULTANEOUS_ASSIGNMENT, see what was before. Both come to the same here: id and expires
-- decide and are assigned last, and the condition of expires is true after that of id was.
INSERT INTO {table} (hash, lock_key, id, owner, token, last_token, ttl, since, expires, forget)
VALUES (x'%[1]x', x'%[2]x', x'%[3]x', x'%[4]x',
	IF(LAST_INSERT_ID(IF(@@autocommit, IF(@@sql_safe_updates, 0, {granted} + %[7]d * {block} + IF(%[7]d > 0, {now}, 0)), {manual})) = 0, 0, IF(%[7]d > 0, {now}, 0)),
	IF(%[7]d > 0, {now} + %[7]d - 1, 0), %[5]d, {now}, {now} + %[5]d, ({now} + %[6]d) DIV {minute} * {minute} + {minute})
ON DUPLICATE KEY UPDATE
	token = IF(
		LAST_INSERT_ID(IF(@@autocommit, IF(@@sql_safe_updates, 0, CASE
			WHEN id = x'%[3]x' THEN {granted} + IF(token > 0, last_token - token + 1, 0) * {block} + token
			WHEN expires > {now} THEN (expires - {now} + 999) DIV 1000 + IF({id of permits}, {refused}, 0)
			ELSE {granted} + %[7]d * {block} + IF(%[7]d > 0, GREATEST(last_token + 1, {now}), 0) END), {manual})) = 0,
		token,
		IF(id = x'%[3]x' OR expires > {now}, token, IF(%[7]d > 0, GREATEST(last_token + 1, {now}), 0))),
	last_token = IF(id = x'%[3]x' OR expires > {now} OR %[7]d = 0, last_token, GREATEST(last_token + 1, {now}) + %[7]d - 1),
	owner = IF(id = x'%[3]x' OR expires > {now}, owner, x'%[4]x'),
	since = IF(id = x'%[3]x' OR expires > {now}, since, {now}),
	ttl = IF(id = x'%[3]x' OR expires <= {now}, %[5]d, ttl),
	forget = IF(id = x'%[3]x' OR expires <= {now}, GREATEST(forget, ({now} + %[6]d) DIV {minute} * {minute} + {minute}), forget),
	id = IF(expires <= {now}, x'%[3]x', id),
	expires = IF(id = x'%[3]x' OR expires <= {now}, GREATEST(expires, {now} + %[5]d), expires)
