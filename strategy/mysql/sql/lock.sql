-- lock(1 hash, 2 key): the row is the transaction's until its end; it waits for the row. One
-- statement takes the lock that it needs at once: two that share a row first would wait for
-- each other. An attempt for permits makes the row of its key by it.
INSERT INTO {table} (hash, lock_key, forget)
VALUES (x'%[1]x', x'%[2]x', ({now} + {keep}) DIV {minute} * {minute} + {minute})
ON DUPLICATE KEY UPDATE forget = GREATEST(forget, ({now} + {keep}) DIV {minute} * {minute} + {minute})
