-- extendpermits(1 hash, 2 claim): the renewal of one claim alone, which waits for its row. Its LAST_INSERT_ID is {manual}
-- without autocommit.
UPDATE {permits} SET
	token = IF(LAST_INSERT_ID(IF(@@autocommit, 1, {manual})) = 0, token, token),
	expires = GREATEST(expires, {now} + ttl),
	forget = GREATEST(forget, ({now} + ttl + GREATEST(2 * ttl, {keep})) DIV {minute} * {minute} + {minute})
WHERE hash = x'%[1]x' AND claim = x'%[2]x' AND era > 0 AND expires > {now}
