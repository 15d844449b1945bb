// Package soak is a nemesis for lockers on Redis: processes that lock, and faults
// that befall them, their connections and their servers, for as long as one likes.
// The processes log what they see on one monotonic clock, and the logs are checked
// afterwards against the promise of package locker.
//
// It complements the conformance suite. A conformance case makes one fault happen at
// one chosen moment; the soak makes many happen at moments nobody chose, and goes on
// until something is found. [Run] is the whole of it, [ServeWorker] makes the program
// its own worker; the command in cmd/soak is both for the strategies of this module.
//
//	func main() {
//		soak.ServeWorker(mine) // does not return in a worker
//		report, err := soak.Run(ctx, soak.Config{Strategies: []soak.Strategy{mine}, Duration: 5 * time.Minute})
//		...
//	}
//
// # What is done
//
// A run is a sequence of rounds of a minute at most. Each strategy gets Redis servers
// of its own, a proxy before each of them, and some processes with many callers, who
// lock, try, wait, give up, re-enter, renew, overrun their lease and unlock on keys
// they share, whose names are such as strategies stumble over; and one who makes a
// Locker for each lock, and closes it, also while it holds. Now and then a call is one
// that has to be refused as invalid. (A store that is no Redis takes part by way of
// [Strategy].Server.) Storms of faults alternate with calms, for a lock that ought to be
// free can only be told from one that cannot be reached while nothing is wrong. [Faults]
// lists the faults. At the end of a round the processes give everything back.
//
// In the middle sits a resource on a server that suffers no faults. It refuses writes
// with a smaller token than it has seen, and counts them: these are the writes that
// no lock with a TTL can prevent, and that fencing stops.
//
// # What is checked
//
// See [Kind] for the violations. A hold reaches from the moment Lock has returned to
// the moment Unlock was called, the lease's deadline, or the death of the process,
// whichever is first. No two holds of a key may overlap, and their tokens must grow.
// Beside that, what each key's callers asked and were answered has to be explained by
// some order of these operations (porcupine), window by window: at an instant at
// which somebody certainly holds the key the history can be cut in two. Commands
// whose outcome nobody knows may have taken effect or not.
//
// Where a server loses its data (faults lose-data and flush of a strategy with one
// server) a lock is lost with it, by design. That is announced in the log: a new
// grant is then accepted, but it must have a greater token, and the lease of the old
// holder must not have been renewed any more.
//
// A strategy is also held to what it claims ([Strategy].Fair, Notified, StoredHolds,
// Unfenced): that processes take turns, that releases wake waiters, that one owner is let
// in wherever it asks, that there are tokens. Of what a busy machine may bring about now
// and then only much is a violation.
//
// The nemesis is tested itself, with lockers broken on purpose (make nemesis): a release
// without a look at the owner, counts that are incremented, a renewal that revives, a
// deadline counted from the reply, wake-ups that are dropped with no polling behind them,
// claim ids used again, tokens that repeat, processes that do not agree on the nodes,
// leaks; and with those of the conformance suite, on a store of their own, but for one of
// which nobody can tell. With faults, TTLs and slack that suit the bug it names each within
// a minute.
//
// # Guarantees
//
// A violation is reported only where the logs prove one, or the servers show it. Whether
// two held a key, in which order and for how long does not depend on how busy the machine
// is; what does ([Stall], [LateLoss], [Slow], [Stuck] and the leaks) has [Config].Slack on
// top of its bound or is given seconds. Turns, wake-ups and renewals may be missed now and
// then: a violation is one in twenty, of the last one in four. Memory is bounded by what
// happens in one round.
//
// # Not guaranteed
//
// That a run without violations would not find one if it went on. That the same seed
// brings about the same history: it determines what is tried, not when the scheduler
// of the machine lets it happen. Other than on Linux the log is on the wall clock,
// which nobody must set meanwhile.
package soak
