// Package renewal is the watchdog: it fires the times of many claims that run out
// unless they are renewed, such as leases on locks, and lets those that are due
// together be renewed together. It knows no more: whether a claim is alive, when
// it ends and when it is renewed next, its owner says by [Scheduler.Set].
//
// # What it does
//
// An [Entry] has two times. When its end comes, Config.Ended is called with it;
// when its renewal is due, Config.Renew is, with others of the same shard. Either
// takes the time off the entry, so that each time fires once, and the owner sets
// the next. Both may fire once more while Remove is on its way: what they find out
// is the owner's to check.
//
// A renewal is fired early, by up to an eighth of the entry's interval, so that
// claims taken at different times come to share round trips: ten thousand claims
// of one interval cost about forty calls of Renew an interval. Each call runs in a
// goroutine of its own, so one that hangs delays no other.
//
// # Cost
//
// There is no goroutine and no timer for a claim: one timer is set to the next
// time of all, and nothing runs while nothing is due. An entry takes 24
// bytes inside the caller's own struct and 32 beside it. Set and Remove take
// O(log n) under one mutex.
//
// # The clock
//
// Times are durations since the Scheduler was made, by Go's monotonic clock. On
// Linux and some other systems it stands still while the machine sleeps.
package renewal
