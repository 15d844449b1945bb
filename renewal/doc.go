// Package renewal keeps claims alive that run out unless they are renewed, such
// as leases on locks. One [Scheduler] does so for all claims of a process. It
// knows neither locks nor stores: a function renews, others are told what became
// of it.
//
// # Guarantees
//
// A claim is added once, and ends once: by [Scheduler.Stop] or
// [Scheduler.Close], or by a call of Config.Lost, never by both. What has ended is
// not revived, whatever answer arrives later.
//
// A claim is lost at its deadline, not when a store says so: the timer sees to
// it while a renewal hangs, and [Scheduler.Expired] does before the timer has had
// its turn. The deadline is reckoned from before the renewal was sent, so that it
// is no later than the store's as long as the clocks run at the same speed;
// leave a margin in Validity for clocks that do not.
//
// A renewal that fails is tried again after about three tenths of the interval,
// sooner when less is left, until the deadline. A batch that gets no answer is
// given up after a third of what its most pressing claim has left, at least 20 ms
// and at most 3 s. Batches run beside each other: one that hangs delays no claim
// but its own, and of those only the ones it has not answered.
//
// # What is not guaranteed
//
// The clock is Go's monotonic one. On Linux and some other systems it stands
// still while the machine sleeps, and it may do so while a virtual machine is
// paused or moved; a claim then seems alive here for as long after its real end
// as the clock stood still. The first renewal that is answered finds out. Only
// a fencing token, checked by the resource, protects against it.
//
// Nothing can take back a renewal that was handed to Renew: it may reach the
// store after Stop has returned. Renew must therefore name the claim so that
// the store renews no other.
//
// A Renew that does not return when its context is done keeps its unanswered
// claims from being tried again; they are lost at their deadlines.
//
// # Cost
//
// There is no goroutine and no timer for a claim: one timer is set to the next
// event, each batch has a goroutine while it runs, and nothing runs while no
// claim is kept. A claim takes about a hundred bytes inside the caller's own
// struct and 32 beside it. An operation takes O(log n) under one mutex; Expired
// and Deadline take no lock.
//
// A claim that is due takes others along, at most MaxBatch in all: those of the
// same shard and a similar interval that are due within an eighth of theirs. Ten
// thousand claims that were taken at random times so cost about forty calls of
// Renew per interval; each is renewed up to an eighth of its interval early.
package renewal
