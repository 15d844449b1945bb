-- release(1 hash, 2 id): its LAST_INSERT_ID is 1 if the claim held the key, and {manual} without autocommit. A release that
-- is sent twice, or late, finds no id, or a successor's.
UPDATE {table} SET
	token = IF(LAST_INSERT_ID(IF(@@autocommit, 1, {manual})) = 0, token, token),
	id = x'',
	owner = x'',
	expires = 0
WHERE hash = x'%[1]x' AND id = x'%[2]x' AND expires > {now}
