-- drop(1 hash, 2 id): a release; the row has no tokens to remember. A DELETE has no LAST_INSERT_ID: without autocommit it
-- does nothing, and release.sql finds out.
DELETE FROM {table} WHERE hash = x'%[1]x' AND id = x'%[2]x' AND expires > {now} AND last_token = 0 AND @@autocommit
