package faultproxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Match reports whether a rule is for the command, given with its arguments. It
// must not call the Proxy.
type Match = func(cmd []string) bool

// MatchCommand matches the commands of these names, in upper or lower case.
func MatchCommand(names ...string) Match {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, cmd[0]) })
	}
}

// MatchAny matches every command.
func MatchAny([]string) bool { return true }

// MatchContains matches commands with sub anywhere in an argument or the name.
func MatchContains(sub string) Match {
	return func(cmd []string) bool {
		return slices.ContainsFunc(cmd, func(arg string) bool { return strings.Contains(arg, sub) })
	}
}

type action int

const (
	pass action = iota
	dropReply
	hangReply
	resetBefore
	resetAfter
	duplicate
	delay
	delayReply
)

// needsNoReply says whether a can be done where replies look like
// messages.
func (a action) needsNoReply() bool { return a == delay || a == resetBefore }

// A Rule is something that happens to the commands it matches. Its methods are
// safe for concurrent use.
type Rule struct {
	which  ConnMatch
	match  Match
	action action
	delay  time.Duration
	limit  int // 0 is none

	mu      sync.Mutex
	claimed int // fired, or about to
	fired   int
	changed chan struct{} // closed and replaced at each firing
	done    chan struct{}
	over    chan struct{} // closed by Stop
	stop    sync.Once
}

func newRule(which ConnMatch, match Match, a action, limit int, d time.Duration) *Rule {
	return &Rule{
		which: which, match: match, action: a, limit: limit, delay: d,
		changed: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{}),
	}
}

// Fired returns how many times the rule has acted. The client of a command sees
// no effect of a firing before it is counted.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Done returns a channel that is closed when all firings of the rule are used
// up: never, for a rule without a limit.
func (r *Rule) Done() <-chan struct{} { return r.done }

// Wait returns when the rule has fired n times, or with the error of ctx.
func (r *Rule) Wait(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		fired, changed := r.fired, r.changed
		r.mu.Unlock()
		if fired >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stop ends the rule for commands yet to come. The commands and answers that it
// delays go on at once.
func (r *Rule) Stop() { r.stop.Do(func() { close(r.over) }) }

func (r *Rule) stopped() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// claim reserves a firing for cmd if there is one left.
func (r *Rule) claim(cmd []string) bool {
	if !r.match(cmd) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped() || r.limit > 0 && r.claimed == r.limit {
		return false
	}
	r.claimed++
	return true
}

// release gives a reserved firing back.
func (r *Rule) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claimed--
}

// fire turns a reserved firing into an actual one.
func (r *Rule) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired++
	close(r.changed)
	r.changed = make(chan struct{})
	if r.fired == r.limit {
		close(r.done)
	}
}
