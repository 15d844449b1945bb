// Package soak is a nemesis for lockers on Redis: several processes lock, the package
// kills and freezes them and makes random trouble for their servers and connections,
// for as long as one likes. A program that brings the servers of another store, and their
// faults, has an [Own] topology. Every process logs what it asked and what it was answered,
// with times of one monotonic clock. Afterwards the logs are checked.
//
// It complements the conformance suite: a case of the suite makes one fault happen at
// one chosen moment, and looks at every promise. The soak makes many faults happen at
// random moments, and looks for violations of each [Kind].
//
// A program that calls [Run] is its own worker:
//
//	func main() {
//		soak.ServeWorker(mine) // does not return in a worker
//		report, err := soak.Run(ctx, soak.Config{Strategies: []soak.Strategy{mine}})
//		...
//	}
//
// # What a run does
//
// A run is a sequence of rounds of at most a minute. In a round each topology gets Redis
// servers of its own, a proxy before each server that holds data, and some worker processes.
// A worker has callers for each strategy that is tested on the topology: they lock, try,
// wait, give up, re-enter, renew, overrun their lease and unlock, on keys they share.
// Workers run at a lower priority than servers and proxies, where the system has the command nice.
// Storms of faults take turns with calms, because only in a calm it is certain
// that a free lock could have been taken. [Faults] lists the faults.
//
// Callers also write to a resource that remembers the greatest fencing token of each key
// and refuses smaller ones. Its server is spared from faults.
//
// # What is checked
//
// A hold reaches from the return of Lock to the call of Unlock, the lease's deadline, or
// the death of the process, whichever comes first. Two holds of a key must not overlap, the
// tokens of holds must grow, a free lock must be granted to a waiter within [Config].Slack
// and 1.5 s while nothing is wrong, a lease must not be used past its deadline, and must
// not be lost before it.
//
// On a key with permits the holds that overlap must not have more permits than there are. All permits must be
// free in the store when the processes have ended and the last TTL is over.
//
// Some faults lose locks by design: a server that loses its data, a clock that is set
// ahead, a failover to a replica that lags. The log of faults says so. Then another grant
// beside the old holder is accepted, but its token must be greater, and the old
// holder's lease must not be renewed any more. A loss excuses nothing if the store had the
// lock after it, as the lease's deadline shows. [Strategy].Acked says that a strategy waits
// for replicas: its locks must survive when their master is killed.
//
// # Guarantees
//
// A violation is reported only if the logs prove it. Overlap and token order do not depend
// on how busy the machine is; for all that does, Slack comes on top.
//
// # Not guaranteed
//
// The same seed does not bring about the same history: it determines what is tried, not
// when the scheduler lets it happen. Other than on Linux the logs are on the wall
// clock, which must not be set meanwhile.
package soak
