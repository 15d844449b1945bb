, swept AS (
	DELETE FROM {table} WHERE hash IN (
		SELECT hash FROM {table}
		WHERE EXISTS (SELECT FROM freed) AND forget < now() AND expires < now()
		ORDER BY forget LIMIT 128
		FOR UPDATE SKIP LOCKED)
), void AS (
	DELETE FROM {permits} WHERE ctid = ANY (ARRAY(
		SELECT p.ctid FROM {permits} p
		WHERE p.forget < now() AND p.expires < now()
			AND NOT EXISTS (SELECT FROM {table} l WHERE l.hash = p.hash AND l.since = p.era AND {is permits} AND l.expires > now())
		ORDER BY p.forget LIMIT 128
		FOR UPDATE OF p SKIP LOCKED))
)
