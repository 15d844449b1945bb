-- keys(hash, n): the next n keys behind that hash that are held.
SELECT encode(hash, 'hex'), encode(key, 'hex') FROM {table} WHERE hash > $1 AND expires > clock_timestamp() ORDER BY hash LIMIT $2
