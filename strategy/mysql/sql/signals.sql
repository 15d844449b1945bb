-- signals(1 and 2 the least and the greatest hash, 3 n): n of the signals to a Locker.
SELECT hash, lock_key, id, owner FROM {table} FORCE INDEX (PRIMARY)
WHERE hash BETWEEN x'%[1]x' AND x'%[2]x' AND expires = 0 LIMIT %[3]d
