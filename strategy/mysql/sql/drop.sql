-- drop(1 hash, 2 id): a release; the row has no tokens to remember.
DELETE FROM {table} WHERE hash = x'%[1]x' AND id = x'%[2]x' AND expires > {now} AND last_token = 0
