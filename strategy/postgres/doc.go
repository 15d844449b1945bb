// Package postgres is the strategy for PostgreSQL (12 or newer by its SQL; tested on 13 to 18): a lock is a row of
// a table, which applications can lock as well.
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db/app")
//	l, err := postgres.New(pool)
//
// Package strategy opens postgres:// and postgresql:// URLs once a program imports
// .../strategy/postgres/register for its effect.
//
// # Guarantees
//
// One holder per key, on the clock of the server. Fencing tokens grow, also after a row
// was deleted or the table lost: they begin at the server's clock in microseconds.
// Locks survive a crash of the server if its commits do (synchronous_commit, and for a
// fail-over synchronous replicas). A release does not wait for the log where the TTL is a minute or
// less: one that the server forgets in a crash within the next second leaves the key locked until its TTL ends.
//
// After a fail-over in which the old server stays up and takes no writes, each connection to it
// is closed at its first error (SQLSTATE 25006). The next one reaches the new primary if the
// pool's URL can: several hosts and target_session_attrs=read-write, or a name that moves.
//
// Not guaranteed: order among the waiters of several processes; re-entry by the same
// named owner from another process; locks after a fail-over to a replica that lagged.
//
// # Table
//
// The table is public.locker_locks, or that of [WithTable]. The first command that finds
// it missing creates it, which needs CREATE in its schema; [Schema] is the SQL, for
// an administrator to run. Otherwise a role needs SELECT, INSERT, UPDATE and DELETE.
// A trigger fills in the column hash by the function public.locker_locks_hash, which is made with the table. (A table that was made
// before 0.1 has a generated column instead. It goes on working, but must not be in a publication: docs/operating.md.)
//
// A row is a key. It remains after a release, for its token, until ten minutes or two
// TTLs after the lease would have ended. Then one of the next releases, of whatever key,
// deletes it: the first of sixteen that a Locker sends, up to 128 rows.
//
// # Permits
//
// locker.NewSemaphore and locker.NewRWLock keep claims of permits in a table of their own, beside that of the keys
// and named as it with _permits behind: public.locker_locks_permits. The first command about permits that finds it
// missing creates it, as above, and needs the same permissions on it. An installation from before permits goes on
// locking without it; NewRWLock used to work without it, too, but needs it now. So an administrator runs the SQL of
// [Schema] again before the update: it makes what is missing and changes nothing else.
//
// A permit is one statement to take and one to give back, whatever number of them is out. An attempt takes one more
// where others have filled the key since this Locker saw free permits. The row of the key has how many there are; its
// lock puts the commands about one key in a line, each for as long as its commit takes. So a key gives out as many
// permits per second as the server's disk flushes its log. A refusal locks nothing, unless the attempt bids. (An
// attempt bids if it waits for several permits, or has waited for one permit for a second: see driver.PermitKeeper.)
// An attempt that has waited for the row for 500 ms is refused. At a key with permits an attempt to lock takes two
// statements, and so does Inspect.
//
// While permits are out, the key is locked to a version that knows no permits. The limit and the number that are out
// are the id of the key's row, such as "permits 20 7", and its claims are
//
//	SELECT p.* FROM public.locker_locks l JOIN public.locker_locks_permits p ON p.hash = l.hash AND p.era = l.since
//	WHERE l.key = convert_to('api', 'UTF8') AND p.expires > clock_timestamp();
//
// If you delete rows of the table of permits, delete the rows of their keys with them: otherwise
// what has been deleted counts as out until the last permit ends. A claim that was given back is
// deleted at once, one that has ended when somebody needs its permits, or as old rows are.
//
// # Commands
//
// Each is one statement and one round trip: one to take a free lock, one to give it back, one for all renewals that are
// due; and one to prepare it, the first time on a connection. An attempt takes two if the row of a key that this Locker
// has released is not free any more. They run on the pool, in its query exec mode: prepared by name unless the pool's
// configuration differs, as planning takes longer than the rest. Nobody waits long for a row that another transaction
// has locked: an attempt is refused, a batch of renewals goes past it and is tried again, and what is about that row
// only gives up after 50 ms.
//
// They are written for READ COMMITTED. Sessions of a stricter level work, too: an attempt, a renewal or a release that the
// server rolls back (SQLSTATE 40001, 40P01) is sent again, up to 10 times, and is no refusal. So is one at
// any level that has waited 50 ms for something else than a row, such as the turn to add a page to the table.
//
// A key that is busy becomes slower while any transaction on the server has an old snapshot:
// pg_dump, a long report, a forgotten session, a standby with hot_standby_feedback. The server
// then keeps each version of the row, two for a Lock and Unlock, and looks through them: after
// 20,000 pairs a pair takes some 5 ms instead of 0.2 ms. It ends with that transaction; the
// page docs/operating.md has the query that finds it. The Locker's logger gets a warning, at most one
// in 10 minutes, when the fastest of 32 attempts took ten times as long as attempts did at their best.
//
// A statement is planned a few times and then keeps its plan. A plan that was made while the table was small
// and freshly vacuumed goes through the whole table, which costs time with each key, until the
// next ANALYZE: by default autovacuum runs it within a minute. enable_seqscan=off in the URL of
// a pool that only the Locker uses, or ALTER ROLE ... SET enable_seqscan = off, avoids such plans.
//
// Attempts to take a lock never have more than the pool's connections queued, so that
// releases and renewals get theirs in turn. An application that uses up the pool by itself
// holds up renewals: give the Locker a pool of its own then.
//
// A command whose context ends costs its connection: pgx asks the server to cancel the command, and
// closes the connection.
//
// # Wake-ups
//
// A release sends NOTIFY on the channel locker_released. While a Locker has waiters, or leases
// that listen for signals, it has one connection besides the pool, which listens. PostgreSQL lets one transaction with
// a NOTIFY commit at a time, in all databases of a server, so that releases do not run
// side by side: a release waits for the COMMIT of every other transaction with a NOTIFY. The
// session's lock_timeout, if there is one, bounds that wait. If the server's queue of
// notifications is full, because another session listens and stays in a transaction, a release
// sends none, and waiters look once a second.
//
// A signal to a holder (Client.RequestRelease, Client.ForceUnlock) is a NOTIFY, too, which takes less than 8000 bytes:
// the holder of a key of more than some 5,800 bytes, prefix included, cannot be asked.
//
// # PgBouncer
//
// Locks and permits work through PgBouncer in transaction mode, from a pool with
// default_query_exec_mode=exec (or PgBouncer 1.21 with max_prepared_statements). Wake-ups do not: a Locker finds out
// that a pooler is in between, and its waiters poll every 10 to 100 ms. [WithoutNotify]
// saves it the attempt.
//
// # Locks of applications
//
// [LockTx], [TryLockTx] and the same for database/sql are locks between transactions, which no Locker minds.
//
// A transaction excludes all Lockers from a key while it has the row locked:
//
//	BEGIN;
//	INSERT INTO public.locker_locks (key) VALUES (convert_to('orders/42', 'UTF8')) ON CONFLICT DO NOTHING;
//	SELECT FROM public.locker_locks
//	WHERE hash = sha256(convert_to('orders/42', 'UTF8')) AND expires <= clock_timestamp()
//	FOR UPDATE;
//	-- One row: the key is this transaction's until its end. None: a Locker holds it.
//	SELECT pg_notify('locker_released', encode(sha256(convert_to('orders/42', 'UTF8')), 'hex'));
//	COMMIT;
//
// The key is that of Lock, with the Locker's prefix before it. The condition on expires is
// necessary: a lease is no row lock. TryLock is refused meanwhile; a waiting Lock is woken by the
// notification, or without it looks once a second. A transaction that locks the row without this
// condition, while a lease lasts, holds up the renewal and the release of the key: lock the row
// for much less than the TTL.
package postgres
