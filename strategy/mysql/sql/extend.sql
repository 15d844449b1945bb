-- extend(1 hash, 2 id): its LAST_INSERT_ID is not 0 if the claim holds the key, and {manual} without autocommit. It is the renewal
-- of one claim alone, which waits for the row: for another renewal of the same lease, or for its
-- release, after which it judges the newest version, and so reports the loss.
UPDATE {table} SET
	expires = IF(LAST_INSERT_ID(IF(@@autocommit, ttl, {manual})) = 0, expires, GREATEST(expires, {now} + ttl)),
	forget = GREATEST(forget, ({now} + ttl + GREATEST(2 * ttl, {keep})) DIV {minute} * {minute} + {minute})
WHERE hash = x'%[1]x' AND id = x'%[2]x' AND expires > {now}
