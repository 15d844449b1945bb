-- endedpermits(1 hash, 2 era): some claims that have ended and still count.
SELECT claim FROM {permits} FORCE INDEX (ends) WHERE hash = x'%[1]x' AND era = %[2]d AND expires <= {now} ORDER BY expires LIMIT {ends}
