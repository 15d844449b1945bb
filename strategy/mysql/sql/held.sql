-- held(1 pairs of hash and id): what those that hold their keys have left.
SELECT hash, id, expires - {now} FROM {table} FORCE INDEX (PRIMARY) WHERE expires > {now} AND (%[1]s)
