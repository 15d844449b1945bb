-- judged({it}): what the row {it} of a key says, at this moment.
--
-- While a key has permits, the id of its row is "permits LIMIT OUT": the limit that was named last, and how
-- many permits are out. The row is since then the head of an era. Its claims are the rows of {permits} with
-- its hash and its since; their permits add up to OUT, ended or not, since whoever changes them has the head locked.
-- expires is not before the end of any of them: so what knows only locks, an older version included, takes
-- the key for locked as long as one may be out. Once that is over, or the row has another id, the era is over and
-- its claims are void.
--
-- A plan that was made while the table was small may take the wrong index of two. So each question can use one index only: a claim is
-- looked for by its id, and its hash and era are compared ({same hash}, {same era}) in a way that no index serves.
--
-- The owner of a head is the bid, or empty: "COUNT SINCE HEARD CLAIM". COUNT permits are kept free for the Locker
-- of CLAIM, which has waited since SINCE and was heard of at HEARD, in microseconds of the server's clock.
--
-- It has the columns of {it} and
--   at, micros  the time
--   live        it is the head of an era; limited and used are its LIMIT and OUT then
--   locked      a lock has the key
--   bids_for    COUNT of the bid; bid_since, bid_claim (as text) and bid_left, its rest in microseconds: 0 if there is none
SELECT *,
	CASE WHEN live THEN split_part(words, ' ', 2)::bigint ELSE 0 END AS limited,
	CASE WHEN live THEN split_part(words, ' ', 3)::bigint ELSE 0 END AS used,
	CASE WHEN heard BETWEEN micros - {bid time} + 1 AND micros THEN heard + {bid time} - micros ELSE 0 END AS bid_left,
	CASE WHEN heard > 0 THEN split_part(bid, ' ', 1)::bigint ELSE 0 END AS bids_for,
	CASE WHEN heard > 0 THEN split_part(bid, ' ', 2)::bigint ELSE 0 END AS bid_since,
	split_part(bid, ' ', 4) AS bid_claim
FROM (
	SELECT *, {is permits} AND expires > at AS live,
		id <> '' AND expires > at AND NOT {is permits} AS locked,
		CASE WHEN {is permits} AND expires > at AND owner <> '' THEN split_part(bid, ' ', 3)::bigint ELSE 0 END AS heard
	FROM (
		SELECT {it}.*, at, (extract(epoch FROM at) * 1000000)::bigint AS micros,
			encode({it}.id, 'escape') AS words, encode({it}.owner, 'escape') AS bid
		FROM {it}, (SELECT clock_timestamp() AS at) AS clock
	) AS read
) AS state
