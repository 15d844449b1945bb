-- release(key, id): a row if the claim held the key. Without tokens to remember there is no
-- use for the key's row.
--
-- An UPDATE or DELETE that had to wait judges the newest version again: a successor's id is
-- not ours. A grant is committed before its id is known to a process that could release it, so
-- that the snapshot has it. A release that is sent twice finds no id.
--
-- Deletes some of the rows that are no longer needed: after the own one is locked, and
-- without waiting for any, so that no two releases wait for each other. (now() is from
-- before, which deletes later at worst, and can be looked up in the index.)
--
-- The bound on the wait for the row does not hold for the COMMIT, which waits for those of
-- all other transactions with a NOTIFY: the last SELECT gives the session its own
-- lock_timeout back. (session runs once, when the first of kept and dropped asks for it.)
WITH session AS MATERIALIZED (
	SELECT current_setting('lock_timeout') AS lock_timeout, {patience} AS bounded
), kept AS (
	UPDATE {table} SET id = '', owner = '', expires = '-infinity'
	WHERE hash = sha256($1) AND id = $2 AND expires > clock_timestamp() AND last_token > 0 AND (SELECT bounded FROM session)
	RETURNING hash
), dropped AS (
	DELETE FROM {table}
	WHERE hash = sha256($1) AND id = $2 AND expires > clock_timestamp() AND last_token = 0 AND (SELECT bounded FROM session)
	RETURNING hash
), freed AS MATERIALIZED (
	SELECT hash FROM kept UNION ALL SELECT hash FROM dropped
), swept AS (
	DELETE FROM {table} WHERE hash IN (
		SELECT hash FROM {table}
		WHERE EXISTS (SELECT FROM freed) AND forget < now() AND expires < now()
		ORDER BY forget LIMIT 128
		FOR UPDATE SKIP LOCKED)
)
SELECT {notify}, set_config('lock_timeout', (SELECT lock_timeout FROM session), true) FROM freed
