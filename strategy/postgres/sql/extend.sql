-- extend(key, id, ttl, forget): a row if the claim holds the key. It is the renewal of one
-- claim alone, which waits for the row: for another renewal of the same lease, or for its
-- release, after which it judges the newest version, and so reports the loss.
UPDATE {table} SET
	expires = greatest(expires, clock_timestamp() + interval '1 ms' * $3),
	forget = greatest(forget, {minute after} $4))
WHERE hash = sha256($1) AND id = $2 AND expires > clock_timestamp() AND {patience}
RETURNING true
