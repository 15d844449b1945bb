-- inspect(1 hash): the holder, if there is one.
SELECT id, owner, last_token, since, (expires - {now}) DIV 1000 FROM {table} WHERE hash = x'%[1]x' AND expires > {now}
