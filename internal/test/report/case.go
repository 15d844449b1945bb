//go:build unix

package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TTL is that of the locks. etcd refuses less than 2 s.
const TTL = 3 * time.Second

// Patience is how long the next one waits.
const Patience = 4 * TTL

// Case is a fault.
type Case struct {
	Name  string
	Title string
	Done  string // what is done, for the page
	Shows Kind
	Keeps bool                         // nothing is done to the lock: the holder has to go on
	For   func(Subject) bool           // nil: every subject
	Stage func(Subject) (Stage, error) // its servers
	Run   func(*Run) (Outcome, error)
	Want  func(Subject, Outcome) error // of ours; nil: whatever
	Why   map[string]string            // why it went so with a subject where it broke, for the page
}

// Kind is what a case shows of each subject.
type Kind int

// The kinds.
const (
	timeline Kind = iota // when the next one was granted the lock, and when the holder knew
	Freed                // how soon the key could be locked
	late                 // writes of a holder that was stopped
	counts               // sections, and those that met another one
)

// Outcome is what happened to a subject. Times are since the fault.
type Outcome struct {
	Subject Subject
	Failed  string // it could not be run

	Granted  time.Duration // the holder's lock, before the fault
	Next     time.Duration // the next one was granted the lock; 0: it was not
	LastHeld time.Duration // the last question that was answered by "held" was asked
	SaidLost time.Duration // the answer was "lost"; 0: it never was
	End      time.Duration // of what was watched
	Died     bool          // the holder was killed
	NoGrant  string        // the lock was not granted
	Nobody   bool          // the holder lost it, and the next one did not get it within Patience

	Took time.Duration // a call whose command went wrong

	Late, Refused, Noticed int // writes after a pause, those a token stopped, those whose process knew
	Counted                Counted
}

// Both is how long two processes were let in, as far as it is proven.
func (o Outcome) Both() time.Duration {
	if o.Next == 0 || o.Died {
		return 0
	}
	return max(0, o.LastHeld-o.Next)
}

// Run is a case on a subject.
type Run struct {
	Stage
	Subject Subject
	Key     string
	Pauses  int

	processes []*Process
	fault     time.Time
}

// Start starts a process: 0 is the holder, 1 the next one.
func (r *Run) Start(who int) (*Process, error) {
	p, err := start(r.Subject, r.Target(who), TTL)
	if err == nil {
		r.processes = append(r.processes, p)
	}
	return p, err
}

// Two starts two processes whose connections and scripts are there.
func (r *Run) Two() (holder, next *Process, err error) {
	for i, p := range []**Process{&holder, &next} {
		if *p, err = r.Start(i); err != nil {
			return nil, nil, err
		}
		warm := fmt.Sprint(r.Key, ":warm:", i)
		if _, err = (*p).Lock(warm, Patience); err == nil {
			err = (*p).Unlock(warm)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("warming up: %w", err)
		}
	}
	return holder, next, nil
}

// Fault notes when the fault began.
func (r *Run) Fault() { r.fault = time.Now() }

// Since returns a time on the page's scale; a time that never came is 0.
func (r *Run) Since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return cmp.Or(t.Sub(r.fault), time.Nanosecond)
}

// Held has a holder that the lock was granted to, and a fault, and the next one, who wants it.
// before is nil, or what happens before the lock is granted.
func (r *Run) Held(before func(), fault func(holder *Process) error) (o Outcome, err error) {
	holder, next, err := r.Two()
	if err != nil {
		return o, err
	}
	if before != nil {
		before()
	}
	granted, err := holder.Lock(r.Key, Patience)
	if err != nil && r.Subject.Acks {
		o.NoGrant = err.Error()
		return o, nil
	}
	if err != nil {
		return o, err
	}
	time.Sleep(TTL / 10) // the fault comes into the lease
	r.Fault()
	if err := fault(holder); err != nil {
		return o, fmt.Errorf("the fault: %w", err)
	}
	theirs, err := next.Lock(r.Key, Patience)
	if err != nil {
		return o, r.notGranted(&o, holder, granted, err)
	}
	// A holder that does not know has time to learn it: a renewal of it is due.
	time.Sleep(TTL)
	return r.seen(granted, theirs, holder)
}

// notGranted returns the outcome when the next one did not get the lock.
func (r *Run) notGranted(o *Outcome, holder *Process, granted State, err error) error {
	got, serr := r.seen(granted, State{}, holder)
	*o = got
	if serr == nil && got.SaidLost == 0 && got.LastHeld > Patience-TTL {
		return nil // the holder goes on
	}
	if serr == nil && !r.Subject.Ours() {
		o.Nobody = true
		return nil
	}
	return errors.Join(fmt.Errorf("the next one: %w", err), serr)
}

// seen collects what the two saw.
func (r *Run) seen(granted, next State, holder *Process) (o Outcome, err error) {
	o = Outcome{Granted: r.Since(granted.Granted), Next: r.Since(next.Granted), End: time.Since(r.fault)}
	if holder.dead {
		o.Died = true
		return o, nil
	}
	s, err := holder.State(r.Key)
	o.LastHeld, o.SaidLost = r.Since(s.LastHeld), r.Since(s.SaidLost)
	return o, err
}

// run runs a case on a subject.
func (c Case) run(s Subject, pauses int) (o Outcome) {
	defer func() {
		if r := recover(); r != nil { // of a TB
			o = Outcome{Subject: s, Failed: fmt.Sprint(r)}
		}
	}()
	stage, err := c.Stage(s)
	if err != nil {
		return Outcome{Subject: s, Failed: err.Error()}
	}
	defer stage.Close()
	r := &Run{Stage: stage, Subject: s, Key: "report:" + c.Name, Pauses: pauses}
	defer func() {
		for _, p := range r.processes {
			p.Kill()
		}
	}()
	o, err = c.Run(r)
	if o.Subject = s; err != nil {
		o.Failed = err.Error()
	}
	return o
}

// All runs a case on the subjects that it is for, some at the same time.
func (c Case) All(ctx context.Context, subjects []Subject, pauses, atOnce int) []Outcome {
	var mine []Subject
	for _, s := range subjects {
		if c.For == nil || c.For(s) {
			mine = append(mine, s)
		}
	}
	all := make([]Outcome, len(mine))
	tickets := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, s := range mine {
		tickets <- struct{}{}
		wg.Go(func() {
			defer func() { <-tickets }()
			if ctx.Err() != nil {
				all[i] = Outcome{Subject: s, Failed: "interrupted"}
				return
			}
			all[i] = c.run(s, pauses)
			fmt.Fprintf(os.Stderr, "%s, %s: %s\n", c.Name, s.Name, c.line(all[i]))
		})
	}
	wg.Wait()
	return all
}

// Verdict returns an error for each subject of ours that does not keep what it promises, and for each that
// could not be run.
func (c Case) Verdict(all []Outcome) error {
	var errs []error
	for _, o := range all {
		switch {
		case o.Failed != "":
			errs = append(errs, fmt.Errorf("%s, %s: %s", c.Name, o.Subject.Name, o.Failed))
		case o.Subject.Ours() && c.Want != nil:
			if err := c.Want(o.Subject, o); err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", c.Name, o.Subject.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
