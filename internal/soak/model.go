package soak

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The answers of one key's callers are explained by an order of the operations, each at
// some moment between call and return, in which a mutex with an owner and a growing
// token answers the same.

type opKind int

const (
	opGrant   opKind = iota
	opRefusal        // of a TryLock that nothing but a holder can have refused
	opRenew
	opUnlock
	opExpiry // a lease may end by itself
	opLoss   // the data is gone
)

// opIn is an operation, opOut its answer.
type (
	opIn struct {
		kind  opKind
		lease int // 0: none
		token int64
		name  string
	}
	opOut struct {
		held    bool // renewal, unlock: the lease held the key
		unknown bool // it may have taken effect or not
	}
	mutexState struct {
		lease int // 0: free
		token int64
	}
)

func mutexModel(initial mutexState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, output any) (bool, any) {
			return state.(mutexState).step(input.(opIn), output.(opOut))
		},
		DescribeOperation: func(input, output any) string { return describeOp(input.(opIn), output.(opOut)) },
		DescribeState: func(state any) string {
			if s := state.(mutexState); s.lease != 0 {
				return fmt.Sprintf("held with token %d", s.token)
			}
			return "free"
		},
	}
}

func (s mutexState) step(in opIn, out opOut) (bool, mutexState) {
	holds := s.lease == in.lease
	free := mutexState{token: s.token}
	switch in.kind {
	case opGrant:
		if in.token == 0 { // without fencing
			return s.lease == 0, mutexState{in.lease, s.token}
		}
		return s.lease == 0 && in.token > s.token, mutexState{in.lease, in.token}
	case opRefusal:
		return s.lease != 0, s
	case opRenew:
		return out.unknown || out.held == holds, s
	case opUnlock:
		if holds {
			return out.unknown || out.held, free
		}
		return out.unknown || !out.held, s
	case opExpiry:
		if holds {
			return true, free
		}
		return true, s
	default:
		return true, free
	}
}

func describeOp(in opIn, out opOut) string {
	answer := "not held"
	switch {
	case out.unknown:
		answer = "?"
	case out.held:
		answer = "held"
	}
	switch in.kind {
	case opGrant:
		return fmt.Sprintf("%s: granted, token %d", in.name, in.token)
	case opRefusal:
		return in.name + ": refused"
	case opRenew:
		return fmt.Sprintf("%s: Renew -> %s", in.name, answer)
	case opUnlock:
		return fmt.Sprintf("%s: Unlock -> %s", in.name, answer)
	case opExpiry:
		return in.name + ": may have expired"
	default:
		return "the data is lost"
	}
}

const windowTimeout = 5 * time.Second // to find an order, or that there is none

// window is a part of a key's history between two instants at which it is certain
// who held the key: from (0: the beginning, nobody) and to (the end: for ever).
type window struct {
	span
	initial mutexState
	ops     []porcupine.Operation
	began   instant // of the round
}

// forever is later than anything.
const forever = instant(1<<63 - 1)

// windows cuts the history of a key, with so many holds in each at least.
//
// At the moment a grant was returned its holder holds, unless the data was lost or
// others hold, too. What was going on then for other leases has taken effect before
// that moment if it began before the grant, or has yet to; but a grant from before a
// loss of data may be told of after later ones.
func (h *history) windows(k *keyHistory, strict []attempt, holds int) []window {
	data := h.losses
	var all []window
	from, first := instant(0), 0 // the window's beginning, and the hold then if from != 0
	least := k.leastTokens()
	for i, x := range k.holds {
		if i-first < holds || data.between(x.call, x.ret) || x.end(data) <= x.ret || least[i] < x.token || x.token == 0 || k.heldByOthers(i, data) {
			continue
		}
		all = append(all, h.window(k, span{from, x.ret}, first, i, strict))
		from, first = x.ret, i
	}
	return append(all, h.window(k, span{from, forever}, first, len(k.holds), strict))
}

// leastTokens has for each hold the least token of it and those after it.
func (k *keyHistory) leastTokens() []int64 {
	least := make([]int64, len(k.holds))
	for i := len(k.holds) - 1; i >= 0; i-- {
		if least[i] = k.holds[i].token; least[i] == 0 {
			least[i] = math.MaxInt64 // without fencing
		}
		if i+1 < len(least) {
			least[i] = min(least[i], least[i+1])
		}
	}
	return least
}

// heldByOthers reports whether anybody else holds when hold i is granted.
func (k *keyHistory) heldByOthers(i int, data spans) bool {
	const far = 200 // who was granted before these holds no more
	for j := i - 1; j >= max(0, i-far); j-- {
		if k.holds[j].end(data) > k.holds[i].ret {
			return true
		}
	}
	return false
}

// window makes the one in which the holds first to last were granted, first
// excepted if it holds at the beginning, last included if there is one.
func (h *history) window(k *keyHistory, s span, first, last int, strict []attempt) window {
	w := window{span: s, began: h.began}
	if s.from != 0 {
		w.initial = mutexState{first + 1, k.holds[first].token}
	}
	for i := k.stirring(first, s.from); i < min(last+1, len(k.holds)); i++ {
		x := k.holds[i]
		in := opIn{lease: i + 1, token: x.token, name: fmt.Sprintf("%s/%d", x.proc.name, x.op)}
		granted := i > first || i == first && s.from == 0
		if granted {
			w.add(x.proc, opGrant, in, opOut{}, span{x.call, x.ret})
		}
		if i == last {
			break // what it did later is in the next window
		}
		// By the time the next one was granted, this one had ended.
		ended := span{x.deadline, forever}
		if i+1 < len(k.holds) && k.holds[i+1].ret > x.deadline {
			ended.to = k.holds[i+1].ret
		}
		if (granted || i == first) && !(x.unlocked && x.unlock.result == resOK) {
			w.add(x.proc, opExpiry, in, opOut{}, ended)
		}
		for _, r := range x.renews {
			out := opOut{held: r.result == resOK, unknown: r.result != resOK && r.result != resLost || x.flags&flagLimited != 0}
			w.add(x.proc, opRenew, in, out, r.span)
		}
		if x.unlock.from != 0 && (i >= first || x.unlocked) {
			// Of a lease that a limit has ended, or whose lock was lost with
			// the data, the answer does not say who held. Of a release that
			// arrived twice it may be the second's, which found nothing.
			unknown := !x.unlocked || x.flags&flagLimited != 0 || h.losses.between(x.call, x.unlock.to) ||
				x.unlock.result == resLost && h.twice.between(x.unlock.from, x.unlock.to)
			w.add(x.proc, opUnlock, in, opOut{held: x.unlock.result == resOK, unknown: unknown}, x.unlock.span)
		}
	}
	for _, a := range strict {
		// One that was going on at the beginning or the end met a holder then.
		if a.call >= s.from && a.ret <= s.to {
			w.add(a.proc, opRefusal, opIn{name: fmt.Sprintf("%s/%d", a.proc.name, a.op)}, opOut{}, span{a.call, a.ret})
		}
	}
	for _, loss := range h.losses {
		if loss.overlaps(s) {
			w.add(nil, opLoss, opIn{}, opOut{}, loss)
		}
	}
	return w
}

// stirring is the first hold, first at the latest, of which anything was heard
// after t.
func (k *keyHistory) stirring(first int, t instant) int {
	if k.last == nil {
		k.last = make([]instant, len(k.holds))
		for i, x := range k.holds {
			k.last[i] = max(x.ret, x.unlock.from)
			for _, r := range x.renews {
				k.last[i] = max(k.last[i], r.from)
			}
			if i > 0 {
				k.last[i] = max(k.last[i], k.last[i-1])
			}
		}
	}
	for first > 0 && k.last[first-1] >= t {
		first--
	}
	return first
}

// add adds an operation unless it was over before the window or came after it.
func (w *window) add(p *process, kind opKind, in opIn, out opOut, s span) {
	if s.to == 0 { // no answer
		s.to, out.unknown = forever, true
	}
	if kind != opGrant && (s.from < w.from && w.from != 0 && s.to != forever || s.from >= w.to) {
		return
	}
	in.kind = kind
	client := 0
	if p != nil {
		client = p.index + 1
	}
	w.ops = append(w.ops, porcupine.Operation{
		ClientId: client, Input: in, Output: out,
		Call: int64(max(s.from, w.from)), Return: int64(min(s.to, w.to)),
	})
}

// strictRefusals are the refused TryLocks that only a holder can explain: nothing
// was wrong that could have left a holder nobody knows of, and nobody waited, for
// whom the lock may have been kept.
func (h *history) strictRefusals(k *keyHistory) []attempt {
	if h.quorum {
		return nil
	}
	const deadWaiters = 5 * time.Second // what dead processes keep in a queue
	var murky []span
	for _, x := range k.holds {
		murky = append(murky, span{x.call, x.ret})
		if !x.unlocked || x.unlock.result != resOK {
			// A lease that is over may be left in the store for a while.
			murky = append(murky, span{x.call, x.freed()})
		}
	}
	for _, a := range k.tries {
		if a.flags&flagTry == 0 || a.unknown {
			murky = append(murky, span{a.call, a.ret.add(h.maxTTL + time.Second)})
		}
	}
	for _, t := range slices.Concat(h.troubled, h.foreign[k.key]) {
		murky = append(murky, span{t.from, t.to.add(h.maxTTL + deadWaiters)})
	}
	slices.SortFunc(murky, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var strict []attempt
	next, last := 0, instant(0) // the latest end of those that began before
	for _, a := range k.tries {
		for ; next < len(murky) && murky[next].from <= a.ret; next++ {
			last = max(last, murky[next].to)
		}
		if a.flags&flagTry != 0 && a.result == resNotAcquired && last < a.call && !k.unlocking(a) {
			strict = append(strict, a)
		}
	}
	return strict
}

// unlocking reports whether an Unlock was under way in a's process: until that is
// answered its own callers are refused, even if the lock has been free, and taken, since.
func (k *keyHistory) unlocking(a attempt) bool {
	call := span{a.call, a.ret}
	return slices.ContainsFunc(k.holds, func(x *hold) bool {
		return x.proc == a.proc && x.unlock.from != 0 && call.overlaps(span{x.unlock.from, max(x.unlock.to, x.asked)})
	})
}

// checkOrder wants an order that explains each window. Of holds that are shared the
// model knows nothing.
func (h *history) checkOrder(k *keyHistory) {
	if k.teams {
		return
	}
	strict := h.strictRefusals(k)
	h.stats.Strict += len(strict)
	var small []window
	for _, w := range h.windows(k, strict, h.windowHolds) {
		h.stats.Windows++
		h.stats.Largest = max(h.stats.Largest, len(w.ops))
		switch porcupine.CheckOperationsTimeout(mutexModel(w.initial), w.ops, windowTimeout) {
		case porcupine.Unknown:
			h.stats.Undecided++
		case porcupine.Illegal:
			if small == nil {
				small = h.windows(k, strict, 1)
			}
			h.reportOrder(k, w, small)
		}
	}
}

// reportOrder reports the smallest windows within w that are wrong.
func (h *history) reportOrder(k *keyHistory, w window, small []window) {
	wrong := slices.DeleteFunc(slices.Clone(small), func(s window) bool {
		return s.from < w.from || s.to > w.to ||
			porcupine.CheckOperationsTimeout(mutexModel(s.initial), s.ops, windowTimeout) != porcupine.Illegal
	})
	if len(wrong) == 0 {
		wrong = []window{w}
	}
	for _, w := range wrong {
		_, info := porcupine.CheckOperationsVerbose(mutexModel(w.initial), w.ops, windowTimeout)
		h.violate(NoOrder, k.key, w.extent(), "no order explains the answers to these operations:\n%s", w)
		if last := len(h.violations) - 1; h.stats.Found[NoOrder] <= mostOfAKind {
			h.violations[last].picture = func(path string) error { return porcupine.VisualizePath(mutexModel(w.initial), info, path) }
		}
	}
}

// String lists the operations.
func (w window) String() string {
	var b strings.Builder
	for _, op := range w.ops {
		to := "..."
		if op.Return < int64(forever) {
			to = clock(instant(op.Return), w.began)
		}
		fmt.Fprintf(&b, "  %s - %-11s  %s\n", clock(instant(op.Call), w.began), to, describeOp(op.Input.(opIn), op.Output.(opOut)))
	}
	fmt.Fprintf(&b, "  at first: %s", mutexModel(w.initial).DescribeState(w.initial))
	return b.String()
}

// extent is the time that the window's operations took.
func (w window) extent() span {
	s := span{forever, 0}
	for _, op := range w.ops {
		s.from = min(s.from, instant(op.Call))
		if op.Return < int64(forever) {
			s.to = max(s.to, instant(op.Return))
		}
	}
	return s
}
