-- release(1 hash, 2 id): a row is changed if the claim held the key. A release that is sent
-- twice, or late, finds no id, or a successor's.
UPDATE {table} SET id = '', owner = '', expires = 0 WHERE hash = x'%[1]x' AND id = x'%[2]x' AND expires > {now}
