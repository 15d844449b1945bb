// Package renewal is the watchdog. It calls back when a claim ends and when its renewal is due, and
// batches renewals that are due together. The owner of a claim sets both times by [Scheduler.Set].
//
// # What it does
//
// An [Entry] has two times. When its end comes, Config.Ended is called with it; when its renewal
// is due, Config.Renew is called with it and with others of the same shard. A time fires once:
// the call takes it off the entry, and the owner sets the next time. A call that is on its way
// may still come after Remove, so the owner checks what the call brings.
//
// A renewal is fired early, by up to an eighth of the entry's interval, so that
// claims taken at different times share round trips. Ten thousand claims with one
// interval cost about forty calls of Renew per interval. Each call runs in a
// goroutine of its own, so a call that hangs delays no other call.
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
