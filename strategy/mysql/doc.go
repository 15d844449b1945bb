// Package mysql is the strategy for MySQL (8.0.1 or newer by its SQL; tested on 9.7) and MariaDB
// (10.6 or newer by its SQL; tested on 10.11 and 11.8): a lock is a row of a table.
//
//	db, err := sql.Open("mysql", "app:secret@tcp(db:3306)/app")
//	db.SetMaxOpenConns(16)
//	db.SetMaxIdleConns(16)
//	l, err := mysql.New(db)
//
// Package strategy opens mysql:// and mariadb:// URLs once a program imports
// .../strategy/mysql/register for its effect. [LockTx] is another lock, for the length of a
// transaction.
//
// # Guarantees
//
// One holder per key, on the clock of the server. If this clock jumps ahead, a lease ends early, and the holder learns
// of it at its next renewal. If the clock jumps back, a lease ends late. Fencing tokens grow, also after a row was
// deleted or the table lost: they begin at the server's clock in microseconds. They could repeat only if the rows are
// lost and the clock is behind the last token. Locks survive a crash of the server if its commits do:
// innodb_flush_log_at_trx_commit = 1, the default, and, where the server writes a binary log, sync_binlog = 1, which is
// not the default of MariaDB: there it is 0, and a crash of the machine may undo the last commits. Locks survive a
// fail-over if the replica has them (group replication, or semi-synchronous replication with a timeout that is longer
// than any outage: with the default, 10 s of rpl_semi_sync_master_timeout or rpl_semi_sync_source_timeout, it goes on
// without the replica after that). A replica that lagged may not know a lock. Then the holder learns of the loss at its
// next renewal. The next holder's token is greater if the clocks of the two servers differ by less than the time
// between the two grants.
//
// After a fail-over in which the old server stays up and takes no writes, each connection to it is closed at its first
// error (1290, 1792, 1836, and 1047 of a node of Galera that is in no majority). The next connection reaches the new
// primary if the name in the pool's configuration leads there.
//
// Not guaranteed: order among the waiters of several processes; re-entry by the same
// named owner from another process. The strategy does not use GET_LOCK: a GET_LOCK ends unnoticed with its session, has no
// token and no TTL, and keeps a connection busy while it is held.
//
// # Table
//
// The table is locker_locks in the database of the connection, or that of [WithTable]. The first command
// that finds it missing creates it, which needs CREATE; [Schema] is the SQL, for
// an administrator to run. Otherwise a user needs SELECT, INSERT, UPDATE and DELETE on it. It has
// to be in InnoDB, and without triggers.
//
// A row is a key, or a signal to a holder. After a release the row of a key keeps the token, until ten minutes or two
// TTLs after the lease would have ended. Then one of the next releases, of whatever key,
// deletes it: about one of 16 releases deletes up to 100 such rows, in a statement of its own. Keys are
// compared by their bytes. Times in the table are microseconds since 1970, UTC:
//
//	SELECT lock_key, owner, FROM_UNIXTIME(expires / 1000000) FROM locker_locks WHERE expires > 1000000 * UNIX_TIMESTAMP();
//
// Do not lock its rows in transactions of your own: a Locker waits for them.
//
// # Permits
//
// locker.NewSemaphore and locker.NewRWLock keep claims of permits in a table of their own, which has _permits behind
// the name of the first: locker_locks_permits. The first command about permits that finds it missing creates it;
// [PermitsSchema] is its SQL. A user needs the same permissions on it. An installation from before permits goes on
// locking without it; NewRWLock used to work without it, too, but needs it now.
//
// A permit is one statement to take and one to give back, whatever number of them is out. It is one more if the Locker
// has no row to spare for the claim: it has as many as it had claims of the key at once within the last half minute.
// The first claim of a key that has no row takes five. Where somebody bids, or the limit has changed, a grant is two
// more, and a release one more; without fencing a release is the longer of two statements. The row of the key has how
// many are out, and its lock puts the commands about one key in a line, each for as long as its commit takes. A refusal
// is two statements, of which the first locks the row; the next ones are mostly one, which locks nothing. At a key with
// permits an attempt to lock takes three statements, and Inspect two. A renewal of permits is two statements for all
// claims that are due.
//
// While permits are out, the key is locked to a version that knows no permits. The limit and the number that are out
// are in the id of the key's row, such as "permits 20 7 0", and its claims are
//
//	SELECT p.* FROM locker_locks l JOIN locker_locks_permits p ON p.hash = l.hash AND p.era = l.since
//	WHERE l.lock_key = 'api' AND p.expires > 1000000 * UNIX_TIMESTAMP();
//
// If you delete rows of the table of permits, delete the rows of their keys with them: otherwise
// what has been deleted counts as out until the key's row expires. A claim that has ended is
// forgotten when somebody needs its permits, or as old rows are.
//
// # Commands
//
// Each command about locks is one statement and one round trip, without parameters that would have to be prepared: one to take
// a free lock, one to give it back, one for all renewals that are due (and one more if a claim among
// them was lost or its row is locked). A transaction takes one flush of the server's log, or none if it
// changes no row, as a refused attempt does. Waiters poll: the first one of each process every 10 to 100 ms.
//
// A signal to a holder (Client.RequestRelease, Client.ForceUnlock) is a row, which is no lock: one statement. A Locker that
// listens (Lease.ReleaseRequested) looks for its signals every 100 ms, by one statement that reads only them, and
// deletes those that it has found by another one. So a signal arrives within 100 ms and a round trip. A signal that nobody
// reads is deleted with other old rows, 10 s later or more.
//
// An old snapshot, such as a backup's, does not slow locks: after 20,000 pairs of Lock and Unlock of a key under one, a pair
// took as long as before it, some 0.35 ms.
//
// Statements work at every isolation level. A row that another transaction has locked holds up what is about its key:
// an attempt waits for it until its context ends or innodb_lock_wait_timeout does, which is transient trouble; a batch
// of renewals passes it by. A statement that the server rolls back (1213, 1020 of MariaDB from 11.6 on, and 3101 of
// group replication) is sent again, up to 10 times. The table can be replicated in every binlog_format but, under READ
// COMMITTED, STATEMENT, which InnoDB refuses: each statement uses the time at which it arrived, which is in the log.
//
// # Connections
//
// At most half of the pool's connections, or 16 of a pool without a limit, are used for attempts to take a
// lock, so that releases and renewals need not wait for attempts. Releases and renewals use as many as the limit, or 32.
// New reads the pool's limit once. A command whose context ends costs its connection, as the client
// closes it. If an application uses up the pool by itself, it delays renewals: then give the Locker a pool of its
// own. Sessions need autocommit, which is on by default, and no sql_safe_updates. Without autocommit nothing is granted, renewed or
// released: the command fails, and its connection is closed.
//
// A proxy between the two has to send every statement to the primary, SELECTs included. Nothing is kept in a
// session, so that it may share connections between clients.
package mysql
