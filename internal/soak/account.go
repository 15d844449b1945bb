package soak

import (
	"context"
	"fmt"
	"sync"

	"github.com/distlock/locker"
)

// account compares what the observer of a process's Locker is told with what callers
// saw: of each hold it is told when it begins and when it ends.
type account struct {
	mu      sync.Mutex
	granted map[grantID]bool // to callers
	told    map[grantID]bool // whether it was told of the end, too
	dropped bool             // events were: nothing can be said
	closed  bool             // what follows is not noted
}

// grantID names a hold.
type grantID struct {
	key   string
	token int64
}

func newAccount() *account {
	return &account{granted: make(map[grantID]bool), told: make(map[grantID]bool)}
}

func (a *account) saw(key string, token int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.granted[grantID{key, token}] = true
}

// Observe implements [locker.Observer].
func (a *account) Observe(_ context.Context, e locker.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	id := grantID{e.Key, e.Token}
	a.dropped = a.dropped || e.Dropped > 0
	switch e.Kind {
	case locker.EventAcquired:
		a.told[id] = false
	case locker.EventReleased, locker.EventReleaseFailed, locker.EventLost:
		a.told[id] = true
	}
}

// wrong says what the observer was not told.
func (a *account) wrong() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped {
		return ""
	}
	for id := range a.granted {
		if _, told := a.told[id]; !told {
			return fmt.Sprintf("the observer was not told that %.40q was granted, token %d", id.key, id.token)
		}
	}
	for id, ended := range a.told {
		if !ended {
			return fmt.Sprintf("the observer was not told of the end of the hold of %.40q, token %d", id.key, id.token)
		}
	}
	return ""
}

// settle closes the account once everything was given back. Events of ends may come a
// while later.
func (w *worker) settle() {
	if wrong := eventually(leakPatience, w.account.wrong); wrong != "" {
		s := section{c: newCaller(w, 0), rec: record{op: w.ops.Add(1)}}
		s.wrong("%s", wrong)
	}
	w.account.mu.Lock()
	defer w.account.mu.Unlock()
	w.account.closed = true
}
