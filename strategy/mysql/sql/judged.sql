-- judged({read}): what the row of a key says about permits. {read} locks the row.
--
-- While a key has permits, the id of its row is "permits LIMIT OUT EARLIER": the limit that was named last, how many
-- permits are out, and the limit before that (0: there was none). The row is the head of an era then, which began at
-- its since. The claims of the era are the rows of {permits} with the hash of the head, and its since as their era.
-- Their permits add up to OUT, ended or not, since each statement that changes them has the head locked first.
-- The head does not expire before a claim does whose holder knows so. So what knows only locks takes the key for
-- locked. Once the head has expired, or has another id, the era is over and its claims are void.
--
-- The owner of a head is the bid, or empty: "COUNT SINCE HEARD LOCKER CLAIM". COUNT permits are kept free for LOCKER,
-- which has waited since SINCE and was heard of at HEARD, in microseconds of the server's clock. LOCKER and CLAIM are
-- the beginnings of hashes.
--
-- Each LIMIT 1 keeps a level from being merged into the one around it, which would compute its columns again.
SELECT k.*, CASE WHEN heard BETWEEN at - {bid time} + 1 AND at THEN heard + {bid time} - at ELSE 0 END AS bid_left
FROM (
	SELECT w.*,
		CASE WHEN live THEN {words 2} ELSE 0 END AS limited,
		CASE WHEN live THEN {words 3} ELSE 0 END AS used,
		CASE WHEN live THEN {words 4} ELSE 0 END AS earlier,
		CASE WHEN live AND bid <> '' THEN {bid 1} ELSE 0 END AS bids_for,
		CASE WHEN live AND bid <> '' THEN {bid 2} ELSE 0 END AS bid_since,
		CASE WHEN live AND bid <> '' THEN {bid 3} ELSE 0 END AS heard,
		CASE WHEN live AND bid <> '' THEN {text bid 4} ELSE '' END AS bid_of,
		CASE WHEN live AND bid <> '' THEN {text bid 5} ELSE '' END AS bid_claim
	FROM (
		SELECT r.*, of_permits AND expires > at AS live, NOT of_permits AND words <> '' AND expires > at AS locked
		FROM ({read}) AS r LIMIT 1
	) AS w LIMIT 1
) AS k LIMIT 1
