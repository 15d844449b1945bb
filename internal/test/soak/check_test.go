package soak

import (
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// step is one record in the log of p0 or p1. Times are in milliseconds.
type step struct {
	proc int
	rec  record
}

func rec(proc, at, op int, k kind, more record) []step {
	more.Kind, more.At, more.Op, more.TTL, more.Wait = k, ms(at), uint32(op), 300, 2000
	return []step{{proc, more}}
}

func lock(proc, at, op int) []step { return rec(proc, at, op, recLock, record{}) }

func granted(proc, at, op, token, deadline int) []step {
	return rec(proc, at, op, recGranted, record{Token: int64(token), Deadline: ms(deadline)})
}

func refused(proc, at, op int, r result) []step {
	return rec(proc, at, op, recRefused, record{Result: r})
}

// unlock is answered a millisecond later.
func unlock(proc, at, op int) []step {
	return slices.Concat(rec(proc, at, op, recUnlock, record{}), rec(proc, at+1, op, recUnlocked, record{}))
}

// unlockedWith is an Unlock that is answered a millisecond later.
func unlockedWith(proc, at, op int, r result) []step {
	return slices.Concat(rec(proc, at, op, recUnlock, record{}), rec(proc, at+1, op, recUnlocked, record{Result: r}))
}

// reentered is a re-entry that fails.
func reentered(proc, from, to, op int, r result) []step {
	return slices.Concat(rec(proc, from, op, recLock, record{Flags: flagInner}), rec(proc, to, op, recRefused, record{Flags: flagInner, Result: r}))
}

// held is a lease from its grant to its Unlock. It was asked for a millisecond before.
func held(proc, op, from, to, token int) []step {
	return slices.Concat(lock(proc, from-1, op), granted(proc, from, op, token, from+297), unlock(proc, to, op))
}

// waited is a Lock that was refused.
func waited(proc, op, from, to int) []step {
	return slices.Concat(lock(proc, from, op), refused(proc, to, op, resNotAcquired))
}

func lease(proc, at, op int, k kind, f flags, deadline int) []step {
	return rec(proc, at, op, k, record{Flags: f, Deadline: ms(deadline)})
}

// ms is a time in the script: the clock has run for an hour already.
func ms(n int) instant { return instant(time.Hour).add(time.Duration(n) * time.Millisecond) }

func during(from, to int) span { return span{ms(from), ms(to)} }

func lost(what loss, from, to int) []event {
	return []event{{fault: &Fault{Name: "loss", harmless: true}, span: during(from, to), loss: what}}
}

func twice(from, to int) []event {
	return []event{{fault: &Fault{Name: "twice", harmless: true, doubles: true}, span: during(from, to)}}
}

func trouble0(from, to int) []event {
	return []event{{fault: &Fault{Name: "trouble"}, span: during(from, to)}}
}

// TestChecks: what happened, and which violation that is.
func TestChecks(t *testing.T) {
	t.Parallel()
	for name, c := range checkedHistories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &arena{maxTTL: 300 * time.Millisecond, cfg: Config{Slack: 2 * time.Second}, events: c.events}
			h := newHistory(a, Strategy{Acked: c.acked})
			for i, p := range processes(t, slices.Concat(c.script...)) {
				if i == 0 {
					p.frozen = c.frozen
					if c.killed > 0 {
						p.killed = ms(c.killed)
					}
				}
				if err := h.read(p, 0); err != nil {
					t.Fatal(err)
				}
			}
			h.check()
			checkReplay(t, h, c.want)
			want := []Kind{c.want}
			if c.want == "" {
				want = nil
			}
			if got := slices.Collect(maps.Keys(h.found)); !slices.Equal(got, want) {
				t.Errorf("found %v, want %v: %v", got, want, h.violations)
			}
			if h.count[Regranted] != c.regranted {
				t.Errorf("%d grants beside a holder that lost its lock, want %d", h.count[Regranted], c.regranted)
			}
		})
	}
}

// checkReplay wants the replay to find by itself what the checks of overlaps and tokens find, and nothing where nothing is
// wrong. It takes that out of what was found.
func checkReplay(t *testing.T, h *history, want Kind) {
	t.Helper()
	_, noStep := h.found[NoStep]
	delete(h.found, NoStep)
	if must := want == Overlap || want == TokenOrder; noStep != must && (must || want == "") {
		t.Errorf("the replay finds what is no step of the model: %t, want %t: %v", noStep, must, h.violations)
	}
}

var checkedHistories = map[string]struct {
	script    [][]step
	events    []event
	frozen    spans // p0
	killed    int   // p0; 0: it was not
	acked     bool
	want      Kind
	regranted int
}{
	"one after the other":                {script: [][]step{held(0, 1, 1, 5, 10), held(1, 2, 7, 9, 11)}},
	"the reply to Unlock comes late":     {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), held(1, 2, 7, 9, 11), rec(0, 50, 1, recUnlocked, record{})}},
	"granted beside a holder":            {want: Overlap, script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 7, 9, 11)}},
	"granted beside a process that dies": {want: Overlap, killed: 200, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), held(1, 2, 100, 109, 11)}},
	"granted after the process has died": {killed: 50, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), held(1, 2, 100, 109, 11)}},
	"held though the resource has seen a greater token": {want: Overlap, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recWrite, record{}), lease(0, 6, 1, recAsk, flagYes, 298), unlock(0, 7, 1),
	}},

	// Process 0 keeps its lock (WithSticky): the next lease has the next token, and counts from the same command.
	"kept, and taken again":                  {script: [][]step{held(0, 1, 1, 5, 10), lock(0, 7, 2), granted(0, 8, 2, 11, 298), unlock(0, 20, 2), held(1, 3, 22, 24, 1034)}},
	"granted beside a lock that was kept":    {want: Overlap, script: [][]step{held(0, 1, 1, 5, 10), lock(0, 7, 2), granted(0, 8, 2, 11, 298), unlock(0, 20, 2), held(1, 3, 10, 24, 1034)}},
	"kept, and taken after another's":        {want: TokenOrder, script: [][]step{held(0, 1, 1, 5, 10), held(1, 3, 6, 7, 1034), lock(0, 8, 2), granted(0, 9, 2, 11, 298), unlock(0, 20, 2)}},
	"kept, lost, and taken after another's":  {events: lost(lossSome, 5, 6), script: [][]step{held(0, 1, 1, 5, 10), held(1, 3, 7, 8, 1034), lock(0, 8, 2), granted(0, 9, 2, 11, 298), unlock(0, 20, 2)}},
	"kept, lost, and taken beside another's": {events: lost(lossSome, 5, 6), script: [][]step{held(0, 1, 1, 5, 10), held(1, 3, 7, 50, 1034), lock(0, 8, 2), granted(0, 9, 2, 11, 298), unlock(0, 20, 2)}},

	"a loss between two grants":        {events: lost(lossSome, 5, 6), script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 7, 9, 11)}, regranted: 1},
	"a loss after both":                {want: Overlap, events: lost(lossSome, 8, 9), script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 7, 9, 11)}},
	"a loss of what was not confirmed": {events: lost(lossUnconfirmed, 5, 6), script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 7, 9, 11)}, regranted: 1},
	"a loss of what was confirmed":     {want: Overlap, acked: true, events: lost(lossUnconfirmed, 5, 6), script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 7, 9, 11)}},
	"a loss before a renewal":          {want: Overlap, events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), held(1, 2, 300, 309, 11), unlock(0, 400, 1)}},
	"a loss after a renewal":           {events: lost(lossSome, 250, 251), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), held(1, 2, 300, 309, 11), unlock(0, 400, 1)}, regranted: 1},
	"a loss of a confirmed renewal":    {want: Overlap, acked: true, events: lost(lossUnconfirmed, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), held(1, 2, 300, 309, 11), unlock(0, 400, 1)}},
	"a smaller token after a loss":     {want: TokenOrder, events: lost(lossAll, 5, 6), script: [][]step{held(0, 1, 1, 50, 10), held(1, 2, 51, 53, 9)}},
	"a loss while it was waited for":   {want: Overlap, events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 3900, 1, 10, 4197), unlock(0, 3950, 1), held(1, 2, 3910, 3920, 11)}},
	"a smaller token, the loss while it was waited for": {want: TokenOrder, events: lost(lossSome, 5, 6), script: [][]step{
		lock(0, 0, 1), held(1, 2, 3900, 3905, 11), granted(0, 3910, 1, 10, 4207), unlock(0, 3950, 1),
	}},
	"handed over after the loss": {events: lost(lossSome, 5, 6), regranted: 1, script: [][]step{
		held(0, 1, 1, 49, 10), held(1, 2, 8, 60, 30), lock(0, 20, 3), granted(0, 50, 3, 11, 298), unlock(0, 55, 3),
	}},
	"Lock returned after the loss":    {events: lost(lossAll, 5, 6), script: [][]step{lock(0, 0, 1), held(1, 2, 8, 10, 11), granted(0, 9, 1, 10, 298), unlock(0, 20, 1)}},
	"renewed beside the next holder":  {want: LateLoss, regranted: 1, events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), held(1, 2, 7, 9, 11), lease(0, 200, 1, recAsk, flagYes, 498), unlock(0, 400, 1)}},
	"renewed after a loss of all":     {want: LateLoss, events: lost(lossAll, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), unlock(0, 400, 1)}},
	"renewed, as it was not lost":     {events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), unlock(0, 400, 1)}},
	"not renewed after a loss of all": {events: lost(lossAll, 5, 6), script: [][]step{held(0, 1, 1, 290, 10)}},

	"a token repeats":           {want: TokenOrder, script: [][]step{held(0, 1, 1, 5, 10), held(1, 2, 7, 9, 10)}},
	"no tokens":                 {want: TokenOrder, script: [][]step{held(0, 1, 1, 5, 0), held(1, 2, 7, 9, 0)}},
	"another token on re-entry": {want: TokenOrder, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 2, 1, recLock, flagInner, 0), rec(0, 3, 1, recGranted, record{Flags: flagInner, Token: 11, Deadline: ms(298)}), unlock(0, 5, 1)}},
	"Lock returned after the end, beside the next holder": {script: [][]step{lock(0, 0, 1), lock(1, 399, 2), granted(1, 400, 2, 11, 697), granted(0, 500, 1, 10, 298), unlock(0, 501, 1), unlock(1, 600, 2)}},
	"Lock returned after the end":                         {script: [][]step{lock(0, 0, 1), held(1, 2, 400, 405, 11), granted(0, 500, 1, 10, 298), unlock(0, 501, 1)}},

	"held at the deadline":           {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 297, 1, recAsk, flagYes, 298), lease(0, 298, 1, recAsk, flagYes, 298), unlock(0, 299, 1)}},
	"re-entered past the deadline":   {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 299, 1, recLock, flagInner, 0), rec(0, 300, 1, recGranted, record{Flags: flagInner, Token: 10, Deadline: ms(298)}), unlock(0, 301, 1)}},
	"told late":                      {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 2400, 1, recLost, 0, 298), unlock(0, 2401, 1)}},
	"told when a long call returned": {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 298), lease(0, 201, 1, recRenew, 0, 298), rec(0, 2399, 1, recRenewed, record{Result: resLost, Deadline: ms(298)}), lease(0, 2400, 1, recLost, 0, 298), unlock(0, 2401, 1)}},
	"told late, being frozen":        {frozen: spans{during(200, 2300)}, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 2400, 1, recLost, 0, 298), unlock(0, 2401, 1)}},
	"never told":                     {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), unlock(0, 2400, 1)}},
	"Lost is never closed":           {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 299, 1, recAsk, 0, 298), unlock(0, 2400, 1)}},
	"Lost is closed after a no":      {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 299, 1, recAsk, 0, 298), lease(0, 300, 1, recLost, 0, 298), unlock(0, 2400, 1)}},
	"granted long past the deadline": {want: LateLoss, script: [][]step{lock(0, 0, 1), granted(0, 2400, 1, 10, 298), lease(0, 2401, 1, recLost, 0, 298), unlock(0, 2402, 1)}},

	"a free lock is not granted":               {want: Stall, script: [][]step{held(0, 1, 1, 5, 10), waited(1, 2, 2, 2002), waited(1, 3, 1900, 3900)}},
	"while the server is away":                 {events: trouble0(1000, 1100), script: [][]step{held(0, 1, 1, 5, 10), waited(1, 2, 2, 2002), waited(1, 3, 1900, 3900)}},
	"while nobody waits":                       {script: [][]step{held(0, 1, 1, 5, 10), waited(1, 2, 2, 1900), waited(1, 3, 2002, 3900)}},
	"while a call may have got it":             {script: [][]step{lock(0, 0, 1), refused(0, 1800, 1, resUnavailable), waited(1, 2, 2, 2002), waited(1, 3, 1900, 3900)}},
	"the lock of a dead holder is not granted": {want: Stall, killed: 5, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), waited(1, 2, 2, 2002), waited(1, 3, 1900, 3900)}},
	"a call goes on":                           {want: Stall, script: [][]step{lock(0, 0, 1), refused(0, 4100, 1, resNotAcquired)}, events: trouble0(0, 4000)},
	"a call goes on, being frozen":             {frozen: spans{during(100, 2000)}, script: [][]step{lock(0, 0, 1), refused(0, 4100, 1, resNotAcquired)}, events: trouble0(0, 4000)},
	"an Unlock goes on":                        {want: Stall, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 5100, 1, recUnlocked, record{})}},

	"an Unlock begins after its context": {frozen: spans{during(10, 3010)}, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 9900, 1, recUnlocked, record{}),
	}},
	"an Unlock begins after its context, and goes on": {want: Stall, frozen: spans{during(10, 3010)}, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 10100, 1, recUnlocked, record{}),
	}},
	"an Unlock goes on after a short freeze": {want: Stall, frozen: spans{during(10, 2900)}, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 9500, 1, recUnlocked, record{}),
	}},
	"an Unlock goes on after a late freeze": {want: Stall, frozen: spans{during(210, 3010)}, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 9500, 1, recUnlocked, record{}),
	}},

	"a failed Unlock hides no stall": {want: Stall, script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 5, 1, recUnlock, record{}), rec(0, 6, 1, recUnlocked, record{Result: resUnavailable}),
		waited(1, 2, 7, 2007), waited(1, 3, 1900, 3900), waited(1, 5, 3800, 5800), waited(0, 4, 8000, 8990),
	}},
	"a failed Unlock leaves the lock to its TTL": {script: [][]step{
		lock(0, 0, 1), granted(0, 1, 1, 10, 2298), rec(0, 5, 1, recUnlock, record{}), rec(0, 6, 1, recUnlocked, record{Result: resUnavailable}),
		waited(1, 2, 7, 2007), waited(1, 3, 1900, 3900), waited(1, 5, 3800, 5800), waited(0, 4, 8000, 8990),
	}},

	"an error out of place":    {want: Unexpected, script: [][]step{lock(0, 0, 1), refused(0, 1, 1, resOther)}},
	"Lock reports a loss":      {want: Unexpected, script: [][]step{lock(0, 0, 1), refused(0, 1, 1, resLost)}},
	"Unlock was not acquired":  {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), unlockedWith(0, 5, 1, resNotAcquired)}},
	"Renew was not acquired":   {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 2, 1, recRenew, 0, 298), rec(0, 3, 1, recRenewed, record{Result: resNotAcquired}), unlock(0, 5, 1)}},
	"a re-entry is refused":    {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), reentered(0, 2, 3, 1, resNotAcquired), unlock(0, 5, 1)}},
	"a re-entry has its time":  {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), reentered(0, 2, 200, 1, resUnavailable), lease(0, 201, 1, recAsk, flagYes, 490), reentered(0, 202, 502, 1, resNotAcquired), unlock(0, 510, 1)}},
	"a re-entry finds no loss": {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), reentered(0, 2, 3, 1, resLost), unlock(0, 5, 1)}},
	"a re-entry finds a loss":  {events: lost(lossSome, 2, 3), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), reentered(0, 2, 3, 1, resLost), unlock(0, 5, 1)}},

	"lost before its deadline":              {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 100, 1, recLost, 0, 298), unlockedWith(0, 101, 1, resLost)}},
	"lost at its deadline":                  {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 298, 1, recLost, 0, 298), unlockedWith(0, 299, 1, resLost)}},
	"lost after a loss":                     {events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 100, 1, recLost, 0, 298), unlockedWith(0, 101, 1, resLost)}},
	"lost, and the loss before its renewal": {want: Unexpected, events: lost(lossSome, 5, 6), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 200, 1, recAsk, flagYes, 498), lease(0, 250, 1, recLost, 0, 498), unlock(0, 251, 1)}},
	"Renew finds no loss":                   {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 2, 1, recRenew, 0, 298), rec(0, 3, 1, recRenewed, record{Result: resLost}), unlock(0, 5, 1)}},
	"Unlock finds no loss":                  {want: Unexpected, script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), unlockedWith(0, 5, 1, resLost)}},
	"Unlock finds its release":              {events: twice(4, 7), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), unlockedWith(0, 5, 1, resLost)}},
	"commands arrived twice before":         {want: Unexpected, events: twice(1, 4), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), unlockedWith(0, 5, 1, resLost)}},
	"lost by commands that arrive twice":    {want: Unexpected, events: twice(1, 400), script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), lease(0, 100, 1, recLost, 0, 298), unlock(0, 101, 1)}},
	"Unlock finds the end of the lease":     {script: [][]step{lock(0, 0, 1), granted(0, 1, 1, 10, 298), rec(0, 290, 1, recUnlock, record{}), rec(0, 310, 1, recUnlocked, record{Result: resLost})}},
}

// processes writes the logs, with half a record at the end, as of a process that was killed.
func processes(t *testing.T, script []step) (all []*process) {
	t.Helper()
	for proc := range 2 {
		log, err := createLog(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range script {
			if s.proc == proc {
				log.add(s.rec)
			}
		}
		if _, err := log.f.Write(make([]byte, binary.Size(record{})/2)); err != nil {
			t.Fatal(err)
		}
		all = append(all, &process{name: fmt.Sprint("p", proc), spec: workerSpec{Log: log.f.Name()}})
	}
	return all
}
