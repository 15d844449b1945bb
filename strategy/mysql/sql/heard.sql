-- heard(1 hashes): these signals have arrived.
DELETE FROM {table} WHERE hash IN (%[1]s)
