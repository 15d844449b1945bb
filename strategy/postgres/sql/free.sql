-- free(key, id): release.sql for a claim with a token, whose row stays; it sweeps nothing. The
-- commit does not wait until the log is on disk, or with a standby.
--
-- A crash of the server, or a fail-over, may forget such a release if nothing that was committed after it is
-- kept either. Then the claim, whose grant was kept, holds the key until its TTL ends. Nothing is granted
-- twice: the commit of the next grant waits for the log up to itself, the release included. No token goes
-- back: a release changes none. A grant and a renewal never commit like that: who was told of it
-- would rely on what the server may forget.
WITH session AS MATERIALIZED (
	SELECT current_setting('lock_timeout') AS lock_timeout, {patience} AND {unflushed} AS bounded
)
UPDATE {table} SET id = '', owner = '', expires = '-infinity'
WHERE hash = sha256($1) AND id = $2 AND expires > clock_timestamp() AND (SELECT bounded FROM session)
RETURNING {notify}, set_config('lock_timeout', (SELECT lock_timeout FROM session), true)
