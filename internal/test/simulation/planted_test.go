package simulation

// bug is a mistake that is planted in the engine by a change of one of its files.
type bug struct {
	name   string
	repair string // the commit that repaired it; "": it was made up
	file   string // from the module's root
	old    string // is there once, and is replaced
	new    string
	missed string // why the simulation does not find it; "": it does
}

// Made up: races, and mistakes of the kinds that R1 to R24 are about.
var madeUp = []bug{
	{name: "the deadline of a grant counts from its answer", file: "attempt.go",
		old: "deadline:    sent + validityOf(lasts)", new: "deadline:    now + validityOf(lasts)"},
	{name: "the deadline of a renewal counts from its answer", file: "claim.go",
		old: "max(c.deadline, sent+validityOf(c.TTL)-c.margin())", new: "max(c.deadline, now+validityOf(c.TTL)-c.margin())"},
	{name: "a grant that arrives after the end of its lease counts", file: "attempt.go",
		old: "if end, _, _ := claim.ending(); now < end {", new: "if end, _, _ := claim.ending(); now < end || true {"},
	{name: "a claim's id is used for two attempts", file: "call.go",
		old: "e.claims.Add(1), 10)", new: "e.claims.Add(1)/2, 10)"},
	{name: "a hand-over repeats the token", file: "handover.go",
		old: "next.token++ // reserved by the grant", new: "next.token += 0"},
	{name: "a lease that is renewed is handed to a caller who wants no renewal", file: "handover.go",
		old: "w.renewals == c.renewable &&", new: "true &&"},
	{name: "the last waiter to give up leaves the lock that it was offered", file: "waiter.go",
		old: "watch, unclaimed = ks.endWatch(), ks.withdraw()", new: "watch = ks.endWatch()"},
	{name: "of two Unlocks at once both begin", file: "unlock.go",
		old: "if l.state == leaseUnlocking || l.state == leaseDone {", new: "if l.state == leaseDone {"},
	{name: "a lease is asked for its state without a look at the clock", file: "claim.go",
		old: "\tif !c.inTime() {\n\t\tc.expire().run()\n\t}\n\treturn &c.s.mu", new: "\treturn &c.s.mu"},
	{name: "the end of a release wakes nobody", file: "key.go",
		old: "\t\tks.drop(c)\n\t}\n\tks.wakeNext()", new: "\t\tks.drop(c)\n\t}"},
	{name: "a loss wakes nobody", file: "key.go",
		old: "\tks.wakeNext()\n\ts.prune(ks)\n}\n\n// forgetLost", new: "\ts.prune(ks)\n}\n\n// forgetLost"},
	{name: "a denial is taken for trouble", file: "claim.go",
		old: "denied, failed := isLost(err), without", new: "denied, failed := isLost(err) && automatic && false, without"},
	{name: "any Unlock of a shared lock frees it", file: "unlock.go",
		old: "\t\tl.last = c.leases == nil\n\t}\n\tswitch", new: "\t\tl.last = true\n\t}\n\tswitch"},
}

// Repaired in the past, and brought back.
var repaired = []bug{
	{name: "a lost claim leaves its key some time after its loss", repair: "f3fdf33", file: "claim.go",
		old: "\tc.s.detach(c)\n\treturn after", new: "\tgo func() { defer c.lock().Unlock(); c.s.detach(c) }()\n\treturn after",
		missed: "the repair before it keeps the promise by itself"},
	{name: "E13: a reader meets another reader's loss", repair: "596a618", file: "reentry.go",
		old: "if c.owner == readers && isLost(err) {", new: "if false {"},
	{name: "a timer wakes the next waiter although its command was answered", repair: "596a618", file: "table.go",
		old: "if now = w.e.sched.Now(); ks.late(now) {", new: "if now = w.e.sched.Now(); now >= 0 {",
		missed: "it costs commands, and breaks no promise that is looked at"},
	{name: "the last Unlock and a re-entry race", repair: "00acc92", file: "reentry.go",
		old: "case c.state == claimHeld && c.tenure == t && c.leases != nil:", new: "case c.tenure == t:"},
	{name: "a wait that ends in the instant of its deadline is taken for an outage", repair: "d88f573", file: "attempt.go",
		old: "stopped := err != nil && (c.ended() || errors.Is(err, ErrClosed))", new: "stopped := err != nil && errors.Is(err, ErrClosed)",
		missed: "in virtual time no timer is late"},
	{name: "a wait is over when the timer of its context fires, not at its deadline", repair: "3e7a02e", file: "call.go",
		old: "return c.ctx.Err() != nil || deadlinePassed(c.ctx) }", new: "return c.ctx.Err() != nil }",
		missed: "in virtual time no timer is late"},
	{name: "a watch that is opened beside Close stays open", repair: "0311ef8", file: "attempt.go",
		old: "if kept = err == nil && !c.s.closed; kept {", new: "if kept = err == nil; kept {",
		missed: "a Close in the middle of a subscription is too rare"},
	{name: "a lock that another process may share is handed over", repair: "6f174f6", file: "handover.go",
		old: "return c.Owner == c.ID && w.owner == \"\" &&", new: "return w.owner == \"\" &&"},
	{name: "the owner of a lock that may be handed over is known to the store", repair: "8697bbf", file: "handover.go",
		old: "if n > 0 && c.counted() && !c.named {", new: "if false {",
		missed: "no caller names the owner that another lease has made up"},
	{name: "TryLock waits behind an Unlock that hangs", repair: "bb13235", file: "reentry.go",
		old: "if err := cl.takeTurn(c.ctx, limit); err != nil {", new: "if err := cl.takeTurn(c.ctx, minOutage); err != nil {",
		missed: "one history in some 10,000 finds it"},
	{name: "the end of a lock is reported for each Unlock that is tried again", repair: "c7fb795", file: "claim.go",
		old: "if !c.reported && c.e.notices.wanted {\n\t\tc.e.notices.end(ctx", new: "if c.e.notices.wanted {\n\t\tc.e.notices.end(ctx"},
	{name: "a context of a lost lease ends as after Unlock, once Unlock was called", repair: "c7fb795", file: "lease.go",
		old: "case l.lostBefore:\n\t\treturn l.claim.outcome\n\t", new: "",
		missed: ""},
	{name: "a waiter that is woken when its wait is over asks the store once more", repair: "1fb46cc", file: "waiter.go",
		old: "if c.ended() { // those before it may have left", new: "if false { // those before it may have left",
		missed: "it costs a command, and breaks no promise that is looked at"},
	{name: "a context that was detached from its end bounds a wait", repair: "77f2eb5", file: "internal/bound/bound.go",
		old: "return &Context{Context: Undated(parent), at:", new: "return &Context{Context: parent, at:",
		missed: "no caller has a context of a type of its own"},
	{name: "a parent that blocks holds up the other contexts of its lease", repair: "ff4bf14", file: "claim.go",
		old: "\t\t\tgo ctx.end(lost.cause)", new: "\t\t\tctx.end(lost.cause)",
		missed: "no caller has a context of a type of its own"},
	{name: "a driver's panic leaves a queue without its watch", repair: "ac9930c", file: "attempt.go",
		old: "\t\tdefer opened() // also if the driver panics\n", new: "\t\tdefer func() {\n\t\t\tif recover() == nil {\n\t\t\t\topened()\n\t\t\t}\n\t\t}()\n",
		missed: "no driver panics"},
	{name: "a grant that a newer one has overtaken replaces it", repair: "8ec7e02", file: "attempt.go",
		old: "case old.token > cl.token:\n\t\treturn errLate\n\t", new: ""},
	{name: "Unlock reports a loss where an earlier try was applied and its reply lost", repair: "a8ecd13", file: "unlock.go",
		old: "case c.releases > 0:\n\t\treturn nil // one that was sent in time, and whose answer did not come, was applied\n\t", new: ""},
	{name: "a lock is handed over with a renewal under way that counts for its present holder", repair: "6f174f6", file: "handover.go",
		old: "case c.inRenewal && c.renewable != noLimit: // it counts for the present tenure\n\t\treturn false\n\t", new: ""},
	{name: "TryLock that re-enters has the time of an attempt for its turn, and once more for its command", repair: "found by the simulation", file: "reentry.go",
		old: "c.command(limit-(c.e.sched.Now()-began), func", new: "c.command(limit+0*began, func"},
	{name: "an error of Lock at Close matches a context error that is not the caller's", repair: "found by the simulation", file: "call.go",
		old: "&lastFailure{ErrClosed, withoutContextErrors(err)}", new: "errors.Join(ErrClosed, err)"},
}
