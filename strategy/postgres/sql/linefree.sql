-- linefree(key, id): free.sql, which keeps the key for a second for the first in line, and wakes it alone.
WITH session AS MATERIALIZED (
	SELECT current_setting('lock_timeout') AS lock_timeout, {patience} AND {unflushed} AS bounded
), next AS MATERIALIZED (
	SELECT locker FROM {line} WHERE hash = sha256($1::bytea) AND expires > clock_timestamp() AND convert_to('next ' || locker, 'UTF8') <> $2
	ORDER BY place LIMIT 1
)
UPDATE {table} SET id = coalesce((SELECT convert_to('next ' || locker, 'UTF8') FROM next), ''), owner = '',
	expires = CASE WHEN EXISTS (SELECT FROM next) THEN clock_timestamp() + interval '1 s' ELSE '-infinity' END
WHERE hash = sha256($1) AND id = $2 AND expires > clock_timestamp() AND (SELECT bounded FROM session)
RETURNING pg_notify(coalesce((SELECT 'locker_' || locker FROM next), 'locker_released'), encode(hash, 'hex')),
	set_config('lock_timeout', (SELECT lock_timeout FROM session), true)
