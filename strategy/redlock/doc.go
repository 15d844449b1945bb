// Package redlock locks on a majority of independent Redis masters, counted by
// go-redsync, with fencing tokens, renewal and release notices.
//
// For each operation redsync sends the nodes' parts at the same time, counts the majority,
// judges whether the answers came in time, and cleans up after an attempt that failed. This
// package adds the scripts, with tokens; timeouts, health and bounds for each node; an end
// of split votes; taking a held lock to every node, and a release to each that missed it; and
// renewal, waiting and all else that every strategy has. In an attempt it asks a majority of the
// nodes first, and the spare nodes after 5 ms, or once a node fails or the first ones disagree.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) as long as a majority of the nodes answers
// and keeps its keys: a minority may be dead, unreachable or slow. A node that does not answer delays one command, for
// the node's time-out (see [WithNodeTimeout]), or for some ms if the others are a majority. Then the node is skipped
// while a majority is there without it, and probed in the background. A line in the log and a locker.EventNode report
// it once, and once more when the node is well again. They also report a node that takes more than half of its time for
// a command, or refuses commands for a reason that only a person can remove (a password, a permission, its memory).
// Nodes are probed while the Locker is in use: if it only holds leases, when these are renewed.
//
// A lock is granted by a majority. Some 10 ms later it is on every node that can be reached;
// nodes that cannot, or that lose it, get it when they are back, as long as it is held.
// Lease.Nodes returns how many have it. So after these 10 ms one of five nodes may die or come back
// empty, and later another one.
//
// Tokens grow from holder to holder, however far the nodes' clocks are apart, as
// long as the nodes keep their data: docs/decisions/0008 has the argument. A redsync mutex
// of the same name on the same nodes excludes it and is excluded by it.
//
// The nodes are masters that do not replicate one another, an odd number of them, at
// least 3. If two nodes are one server, redlock refuses them as soon as it has seen the run ids of
// both. (It cannot see the run id if the user may not use INFO.)
//
// # Not guaranteed
//
// A node that restarts without its keys can help to grant a lock that is held. With
// appendonly yes and appendfsync always it loses nothing, at the cost of a disk write
// for each lock; with everysec up to two seconds, with snapshots or no persistence
// more. Without appendfsync always, keep clients away from a restarted node for the longest TTL in
// use. (The node gets each held lock at the next renewal of the lock. So it lacks the lock for a third of the TTL at most,
// if clients reach it at once. The lock is in danger only if the nodes that lack it are a majority.)
//
// A clock that jumps ahead by a TTL expires keys early on its node, and is like such a
// restart. If it jumps in the middle of an attempt, the attempt may get a token that is not
// greater. A clock that is set back, or runs slow, keeps keys for longer, which is
// harmless. Clock rates may differ by 1 %.
//
// Tokens may go back or repeat, until the clocks have caught up, if a minority of the nodes loses
// its data while another node's clock is ahead by more than the time for which the nodes of the
// minority were down.
//
// A replica that is promoted in a node's place, or a FLUSHALL, is a restart without
// keys, too.
//
// A release that a node missed because it was away is repeated for 5 s or the TTL,
// whichever is less. After that the node's key of the released lock stays until its TTL
// ends: two such nodes of three, for two different holders, keep every caller out for so
// long.
//
// A lock that is held for less than those 10 ms is on a majority only: a node that forgets
// it meanwhile may let another holder in.
//
// Hold counts stay in the process. Between processes the first to get a majority wins. If each of
// several contenders gets some of the nodes, and none a majority, they begin anew, for half of a
// node timeout at most, so that a free key has a winner. This takes the fewest commands if all
// processes have the nodes in one order.
//
// A Locker has 512 attempts under way at most. More callers wait for their turn, so that the attempts of thousands of
// callers do not crowd out renewals and releases. On nodes 200 ms away this is about 1,000 locks per second. The wait
// for a turn is a part of the attempt: it ends after some 3 s, and with a short TTL after half of the attempt's time.
// A call whose turn has not come by then counts this as an outage. Lock fails with ErrUnavailable when such an outage
// has lasted for max(TTL, 15 s).
//
// # When it is not the best choice
//
// Nodes that share a machine, a rack, a disk or an operator's mistake fail together, and
// five of them are five times the commands for nothing. Then, and wherever a master with replicas
// is there already, take one of the other strategies with WithReplicaAcks for all
// replicas: a lock is granted once each of them has it, so that a failover keeps it. It
// stops granting while a replica is away, where redlock goes on; and it depends on the
// failover choosing one of these replicas.
//
// # Cost
//
// On each node of a majority one command to lock and one to unlock: two round trips in
// all. A second command to lock, and a third round trip, when nodes have proposed
// different tokens: at the first grant of a key, then for a few in a hundred (more if the
// clocks of the nodes are further apart than some ms and the key is used less than ten
// times per second). A lock that is held for more than 10 ms costs two commands on each of
// the other nodes, beside the caller, and one on every node for each renewal. Calls return
// with a majority's answers.
//
// Commands of many goroutines to one node share its round trips.
//
// Against plain redsync on the same five masters, by
//
//	go -C benchmarks test -run '^$' -bench 'Redlock|^BenchmarkHandOver' .
//
// on two processors, which the masters share: 0.9 to 1.1 times as many pairs of Lock and Unlock
// per second from one goroutine, run by run, and 1.4 to 1.8 times as many from 32, with tokens,
// which redsync does not have. If one of the nodes is a black hole, the 99th percentile of a pair
// is 1 ms from one goroutine and 10 ms from 32. That of redsync is 10 s, and with WithFailFast
// 0.7 ms and 20 ms. The round trips of the next figures take 20 ms. From the call of Unlock to
// the return of a Lock that waits in another process it takes 2.1 round trips: the release and
// its notices, and one to take the lock. Redsync, which polls, needs 4 to 7 round trips in the
// median.
//
// # Keys
//
// On each node the lock key, a string; locker:fence:{key}; and the channel
// locker:released:{key}; and for signals to holders (Lease.ReleaseRequested) the channel
// locker:claims:{UUID}. Redis 6.0 or newer. Commands: EVALSHA EVAL GET SET DEL EXISTS
// PTTL PEXPIRE TYPE INCRBY TIME INFO. To be woken rather than poll: PUBLISH SUBSCRIBE
// UNSUBSCRIBE PING.
package redlock
