package soak

import (
	"fmt"
	"sync/atomic"

	"github.com/distlock/locker"
)

// account counts what the observer of a process is told, and what its callers saw.
type account struct {
	granted atomic.Int64 // leases, those aside that joined another one's hold

	acquired, ended atomic.Int64 // events
}

// Observe implements [locker.Observer].
func (a *account) Observe(e locker.Event) {
	a.ended.Add(int64(e.Dropped)) // of any kind: what was dropped is not held against it
	switch e.Kind {
	case locker.EventAcquired:
		a.acquired.Add(1)
	case locker.EventReleased, locker.EventReleaseFailed, locker.EventLost:
		a.ended.Add(1)
	}
}

// settle compares the accounts, once everything was given back. Events of ends may come
// a while later.
func (w *worker) settle() {
	a := &w.account
	wrong := eventually(leakPatience, func() string {
		granted, acquired, ended := a.granted.Load(), a.acquired.Load(), a.ended.Load()
		if acquired < granted || ended < acquired {
			return fmt.Sprintf("the observer was told of %d grants and of %d ends; there were %d grants", acquired, ended, granted)
		}
		return ""
	})
	if wrong != "" {
		s := section{c: newCaller(w, 0), rec: record{op: w.ops.Add(1)}}
		s.wrong("%s", wrong)
	}
}
