package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

type answer struct {
	state     state
	token     int64         // proposed for a grant
	holder    string        // that refuses, if it is one of ours
	remaining time.Duration // of its key
	noWakeUp  bool          // its release gives no notice
	expired   bool          // a release found nothing after the end of the lease
	err       error
}

type state uint8

const (
	unanswered state = iota
	yes
	no
	failed
)

// tally is how many nodes have said what.
type tally struct {
	yes, no int
	most    int // that refuse for the same holder
	expired int
}

func (o *op) tally() (t tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.parts {
		a, same := &o.parts[i].answer, 0
		switch a.state {
		case yes:
			t.yes++
		case no:
			t.no++
			for j := range o.parts {
				if b := &o.parts[j].answer; b.state == no && b.holder == a.holder {
					same++
				}
			}
			t.most = max(t.most, same)
		}
		if a.expired {
			t.expired++
		}
	}
	return t
}

// trouble returns the error of an operation that has no majority, with the answer of each node
// by name. denied is the meaning of a plain no.
func (o *op) trouble(doing, denied string) *driver.StoreError {
	said := &nodesError{}
	agreed, permanent, conflicts, all := 0, 0, 0, len(o.parts)
	for i, a := range o.answers() {
		err := a.err
		var refined *driver.StoreError
		switch {
		case a.state == yes:
			agreed++
			continue
		case a.state == no:
			err = errors.New(denied)
		case a.state == unanswered:
			err = errors.New("no answer yet")
		case errors.Is(err, locker.ErrConflict):
			conflicts++
		case errors.As(err, &refined) && refined.Permanent:
			permanent++
		}
		said.errs = append(said.errs, fmt.Errorf("node %s: %w", o.d.nodes[i].name, err))
	}
	said.doing = fmt.Sprintf("%d of %d nodes %s, %d are needed", agreed, all, doing, o.d.quorum)
	said.conflict = !o.d.majority(all - conflicts)
	return &driver.StoreError{Err: said, Permanent: !o.d.majority(all - permanent - conflicts)}
}

type nodesError struct {
	doing    string
	errs     []error
	conflict bool // so many nodes have something else at the key that there is no majority without them
}

func (e *nodesError) Error() string {
	all := make([]string, len(e.errs))
	for i, err := range e.errs {
		all[i] = err.Error()
	}
	return e.doing + ": " + strings.Join(all, "; ")
}

// Unwrap leaves out the ends of contexts, which are the nodes', not the caller's, and
// what a majority need not mind.
func (e *nodesError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.errs), func(err error) bool {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
			errors.Is(err, locker.ErrConflict) && !e.conflict
	})
}

// tried and verdict are the answers of a node to an attempt, and to all else.
func tried(g driver.Answer, err error) answer {
	a := answer{state: no, token: g.Token, holder: g.Owner, remaining: g.Remaining, noWakeUp: g.NoWakeUp, err: err}
	switch {
	case errors.Is(err, locker.ErrConflict):
		a.state, a.err = failed, &driver.StoreError{Err: err, NotApplied: true}
	case err != nil:
		a.state = failed
	case g.Granted:
		a.state = yes
	}
	return a
}

func verdict(err error) answer {
	switch {
	case err == nil:
		return answer{state: yes}
	case errors.Is(err, locker.ErrLost):
		return answer{state: no}
	}
	return answer{state: failed, err: err}
}
