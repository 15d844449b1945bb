-- sweep(): deletes some of the rows that are no longer needed, without waiting for any.
DELETE l FROM (
	SELECT hash FROM {table} WHERE forget < {now} AND expires < {now} ORDER BY forget LIMIT 100 FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.hash = old.hash
