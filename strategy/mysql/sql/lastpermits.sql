-- lastpermits(1 hash, 2 era, 3 time after): makes the head last longer. Its LAST_INSERT_ID is not 0 if the era
-- goes on, and {manual} without autocommit.
UPDATE {table} AS h SET
	h.expires = IF(LAST_INSERT_ID(IF(@@autocommit, 1, {manual})) = 0, h.expires, GREATEST(h.expires, {now} + %[3]d)),
	h.forget = GREATEST(h.forget, ({now} + %[3]d) DIV {minute} * {minute} + {minute})
WHERE h.hash = x'%[1]x' AND h.since = %[2]d AND {of permits} AND h.expires > {now}
