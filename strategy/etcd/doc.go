// Package etcd is the strategy for etcd (3.5.13 or newer; tested on 3.5.30, 3.6.16 and 3.7.3, and
// also on 3.4.45): a lock is a line of keys, of which the first holds it.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"h1:2379", "h2:2379", "h3:2379"}})
//	l, err := etcd.New(client)
//
// Package strategy opens etcd:// and etcds:// URLs once a program imports .../strategy/etcd/register for its
// effect.
//
// # Guarantees
//
// One holder per key, whatever minority of the members fails: the majority decides every grant and release.
// Leases count on the leader's monotonic clock; a clock that jumps changes nothing. Processes that wait for a key
// are served first come, first served. Fencing tokens grow, also after keys were deleted or the store was replaced
// by an empty one.
//
// Not guaranteed: re-entry by the same named owner from another process (etcd has no hold counts); the order of a
// process that did not reach etcd for 3 s while it waited, or whose place was ended by a leader of etcd that had
// been deposed: such a process joins the end of the line.
//
// Permits (locker.Semaphore, locker.RWLock) are members of the same line: first come, first served among processes,
// whatever number they ask for, and locks and permits among one another. The first that does not fit waits, and those
// behind it with it. Of a process with several waiters only the first is in line; the next waiter that asks for as many
// takes over its place. An attempt for permits reads the members of the key, about 100 bytes each: a key is for some
// thousand claims at a time. The newest limit counts as long as its claim is there.
//
// # Time
//
// etcd counts leases in whole seconds. With its default settings the shortest lease is 2 s. The lease of a lock is the TTL,
// rounded up, and one second more. Deadline is as exact as with any strategy, since it counts on the client. After
// a holder has died, or has let its lease expire, its key is free up to 3 s later than its Deadline: etcd also
// looks for ended leases twice a second, and revokes at most 1,000 per second. A new leader extends all leases by
// their whole TTL. A process that dies while it waits holds the others up for 4 s at most.
//
// # Keys
//
// All keys begin with "locker/". A claim that holds a key or waits for it has the key
//
//	locker/ + the lock's key, NUL written as NUL 0xFF + NUL 0x01 + the claim's id
//
// whose value is the name of the owner, if the caller gave one, and with permits the byte 0xFF, how many, of how
// many, and the owner. Each such key is a member of the line. The member with the least create revision holds the
// lock; of members with permits those have theirs that fit, up to the first that does not. A member without a lease,
// which another program has put there, holds the lock until it is deleted. The key locker/tokens has the time, in µs
// since 1970, when the first token was asked for, by the clock of the process that asked. It is never deleted. A
// token is this time and 32 for each revision of etcd since then. A Locker that listens for signals
// (Lease.ReleaseRequested) has the key locker/signals/ + the UUID that its claims begin with, which ends 10 s after
// its process at the latest. This package and package concurrency of etcd's client do not see each other's locks.
//
// # Commands
//
// A free Lock is one transaction, and so is its Unlock, while the process has a lease that was granted or renewed
// within the last second, for another lock with an equal TTL. Otherwise the Lock also grants a lease first, and the
// lease is revoked after the Unlock. A TryLock that is refused is one transaction. Renewals are a keep-alive for each
// claim and one read for up to 64; neither is written to disk. The keep-alives go by streams that the Locker keeps. A
// client with a password asks for a token for each stream that it opens, and etcd writes each token to disk. After an
// election, and for the first lease of a process, a renewal takes a grant for each claim and one transaction for up to
// 64, besides. A Lock that waits joins the line by a grant and a transaction, reads once a second, and takes a grant
// and a transaction when it is the first. It watches the member before its own, so that a release wakes one process. A
// hand-over inside a process sends nothing.
//
// A free permit is one transaction where no other is out, and else two, and one more for each member that was put in
// between; its Unlock is one. A process that waits for permits watches the members before its own, and moves when those that
// are left fit.
//
// A Locker that listens keeps a lease, by a keep-alive every 3 s, and watches its key. A signal is one transaction,
// which writes only where somebody listens.
//
// With locker.WithLossDetection a Locker that holds locks has one watch, of what is deleted under its prefix: it gets
// a message for each release there, of any process.
//
// At most 64 attempts of a Locker are under way at a time, so that renewals and releases do not queue behind them.
//
// # The client
//
// The Locker sends commands on the client's connections, to the server that is next in turn. It uses neither
// client.KV nor client.Watcher: wrappers of these (namespaces, caches) are not seen. A server that is frozen, or
// that the network does not reach, makes its share of the commands late until gRPC has noticed: set
// DialKeepAliveTime (10 s is the least) and DialKeepAliveTimeout, as etcd:// URLs do. A command of a
// renewal that has no answer after a sixth of the renewal's time is sent once more, as a rule to another server.
//
// # Permissions
//
// Where authentication is enabled, a user needs READWRITE on the range of its keys, the Locker's prefix included,
// and on locker/tokens:
//
//	etcdctl role grant-permission locks --prefix=true readwrite locker/app:
//	etcdctl role grant-permission locks readwrite locker/tokens
//	etcdctl role grant-permission locks --prefix=true readwrite locker/signals/
//
// The last line is for signals: without it holders get none. Leases need no permission.
package etcd
