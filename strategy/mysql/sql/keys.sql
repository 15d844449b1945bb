-- keys(1 hash, 2 n): the next n keys behind that hash that are held, and whether each has permits, of which none may be out.
SELECT hash, lock_key, {id of permits} FROM {table} FORCE INDEX (PRIMARY) WHERE hash > x'%[1]x' AND expires > {now} ORDER BY hash LIMIT %[2]d
