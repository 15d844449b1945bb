-- Layout 1 of docs/versioning.md stores this in PostgreSQL: its tables; the key "k", which the owner worker holds; the
-- key "e", whose lease has ended; the key "f", which was released; the key "p", of which worker has two of two permits;
-- and the key "b", of which worker has one of two. The trigger fills in the hash of a key. All statements run in one
-- transaction, so that now() is one moment: the era of the permits.
CREATE TABLE public.locker_locks (
	hash       bytea PRIMARY KEY,
	key        bytea NOT NULL,
	id         bytea NOT NULL DEFAULT '',
	owner      bytea NOT NULL DEFAULT '',
	token      bigint NOT NULL DEFAULT 0,
	last_token bigint NOT NULL DEFAULT 0,
	since      timestamptz NOT NULL DEFAULT '-infinity',
	expires    timestamptz NOT NULL DEFAULT '-infinity',
	forget     timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 min'
) WITH (fillfactor = 70);
CREATE INDEX ON public.locker_locks (forget);
CREATE FUNCTION public.locker_locks_hash() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN new.hash = pg_catalog.sha256(new.key); RETURN new; END';
CREATE TRIGGER locker_hash BEFORE INSERT ON public.locker_locks FOR EACH ROW EXECUTE FUNCTION public.locker_locks_hash();

CREATE TABLE public.locker_locks_permits (
	hash    bytea NOT NULL,
	era     timestamptz NOT NULL,
	id      bytea NOT NULL,
	owner   bytea NOT NULL,
	permits int NOT NULL,
	token   bigint NOT NULL,
	since   timestamptz NOT NULL,
	expires timestamptz NOT NULL,
	forget  timestamptz NOT NULL,
	PRIMARY KEY (id, hash, era)
);
CREATE INDEX ON public.locker_locks_permits (hash, era, expires);
CREATE INDEX ON public.locker_locks_permits (forget);

-- The claim of "k" has reserved 32 tokens.
INSERT INTO public.locker_locks (key, id, owner, token, last_token, since, expires, forget) VALUES
	('k', '0f0e0d0c-1111-4222-8333-444455556666:1', 'worker', 1899999999999969, 1900000000000000, now(), now() + interval '1 min', now() + interval '10 min'),
	('e', '0f0e0d0c-1111-4222-8333-444455556666:2', 'worker', 1900000000000000, 1900000000000000, now() - interval '1 min', now(), now() + interval '10 min'),
	('f', '', '', 1900000000000000, 1900000000000000, now() - interval '1 min', '-infinity', now() + interval '10 min'),
	('p', 'permits 2 2', '', 0, 1900000000000000, now(), now() + interval '2 min', now() + interval '10 min'),
	('b', 'permits 2 1', '', 0, 1900000000000000, now(), now() + interval '2 min', now() + interval '10 min');

INSERT INTO public.locker_locks_permits (hash, era, id, owner, permits, token, since, expires, forget) VALUES
	(sha256('p'), now(), '0f0e0d0c-1111-4222-8333-444455556666:3', 'worker', 2, 1900000000000000, now(), now() + interval '1 min', now() + interval '10 min'),
	(sha256('b'), now(), '0f0e0d0c-1111-4222-8333-444455556666:4', 'worker', 1, 1900000000000000, now(), now() + interval '1 min', now() + interval '10 min');
