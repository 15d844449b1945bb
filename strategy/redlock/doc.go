// Package redlock locks on a majority of independent Redis masters, counted by
// go-redsync, with fencing tokens, renewal and release notices.
//
// # Guarantees
//
// What every strategy of this module promises (see package locker), as long as a
// majority of the nodes answers and keeps its keys: a minority may be dead,
// unreachable or slow. A node that does not answer in its time is skipped and looked
// after until it does, and held locks are taken to it again. Tokens grow from holder
// to holder: the greatest proposal of a first round is written to a majority by a
// second one. A redsync mutex of the same name on the same nodes excludes it and is
// excluded by it.
//
// # Not guaranteed
//
// A node that restarts without its data can help to grant a lock that is held: keep
// it away for a TTL. A clock that jumps forward expires keys early on its node. Hold
// counts stay in the process, and between processes whoever gets a majority first
// wins. Where the nodes are not really independent, one master with all its replicas
// confirming (WithReplicaAcks of the other strategies) is the better choice.
//
// # Cost
//
// On each node: two commands to lock (one without fencing), one to unlock, one for
// each renewal.
//
// # Keys
//
// On each node the lock key, a string; locker:fence:{key}; and the channel
// locker:released:{key}. Redis 6.0 or newer.
package redlock
