-- droppermits(1 triples of hash, claim and era): deletes such rows, unless they are of use again, without waiting for any.
DELETE p FROM (
	SELECT hash, claim FROM {permits} FORCE INDEX (PRIMARY) WHERE (%[1]s) AND forget < {now} AND expires < {now} LIMIT 100 FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN {permits} AS p FORCE INDEX (PRIMARY) ON p.hash = old.hash AND p.claim = old.claim
