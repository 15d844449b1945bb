-- signal(1 hash, 2 key, 3 id, 4 kind): a row about no lock, which the Locker that it is for deletes, or a sweep.
INSERT INTO {table} (hash, lock_key, id, owner, forget) VALUES (x'%[1]x', x'%[2]x', x'%[3]x', x'%[4]x', {now} + {signal})
