-- extendpermits(1 hash, 2 claim): the renewal of one claim alone, which waits for its row.
UPDATE {permits} SET
	expires = GREATEST(expires, {now} + ttl),
	forget = GREATEST(forget, ({now} + ttl + GREATEST(2 * ttl, {keep})) DIV {minute} * {minute} + {minute})
WHERE hash = x'%[1]x' AND claim = x'%[2]x' AND era > 0 AND expires > {now}
