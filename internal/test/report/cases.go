//go:build unix

package report

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Cases returns the faults that there are on every store. on starts the servers of a subject.
func Cases(on func(Subject) (Stage, error)) []Case {
	return []Case{
		{
			Name: "long", Title: "A section that takes longer than the TTL", Stage: on, Want: GoesOn, Keeps: true,
			Done: "No fault: the holder works for four times the TTL, and another process waits.",
			Run:  func(r *Run) (Outcome, error) { return r.Held(nil, func(*Process) error { return nil }) },
		},
		{
			Name: "crash", Title: "The holder crashes", Stage: on, Want: isGranted,
			Done: "The process of the holder is killed (`kill -9`).",
			Run: func(r *Run) (Outcome, error) {
				return r.Held(nil, func(holder *Process) error { holder.Kill(); return nil })
			},
		},
		{
			Name: "pause", Title: "The holder is paused between its check and its write", Shows: late, Stage: on, Run: pause, Want: refusesAll,
			Done: "The holder asks its library whether it holds the lock. The answer is yes, and the process is stopped (`SIGSTOP`) before its write. " +
				"The next owner gets the lock and writes. Then the first process goes on, and writes. The resource refuses a smaller token than the greatest it has seen.",
		},
		{
			Name: "partition", Title: "The holder's network goes silent", Stage: on, Want: OneAtATime,
			Done: "The holder's packets no longer arrive, in either direction. Its connections stay open.",
			Run: func(r *Run) (Outcome, error) {
				return r.Held(nil, func(*Process) error { r.Silence(0, true); return nil })
			},
		},
		{
			Name: "forget", Title: "A server loses its data", Stage: on, Want: ToldOrGoesOn,
			Done: "On Redis `FLUSHALL` on one server. Elsewhere an administrator deletes all keys of etcd, or all rows of the table.",
			Run: func(r *Run) (Outcome, error) {
				return r.Held(nil, func(*Process) error { return r.Forget(context.Background()) })
			},
		},
		{
			Name: "cut", Title: "Connections are reset all the time", Shows: counts, Stage: on, Run: cut, Want: noOverlaps,
			Done: "Three processes lock one key, again and again, for 4 s. Every 200 ms all connections are reset. In each section the process creates a file that must not exist yet. " +
				"The number of sections is no measure of speed: a library that serves nobody in turn gets through more of them.",
		},
	}
}

// GoesOn wants a holder that keeps the lock.
func GoesOn(_ Subject, o Outcome) error {
	if o.Next != 0 || o.SaidLost != 0 {
		return fmt.Errorf("want a holder that goes on, got the next one %v and a loss %v after the fault", o.Next, o.SaidLost)
	}
	return nil
}

func isGranted(_ Subject, o Outcome) error {
	if o.Next == 0 {
		return errors.New("want the lock for the next one, got nothing")
	}
	return nil
}

// OneAtATime wants no two holders.
func OneAtATime(_ Subject, o Outcome) error {
	if o.Both() > 0 {
		return fmt.Errorf("want one holder at a time, got two for %v", o.Both())
	}
	return nil
}

// ToldOrGoesOn wants a holder that learns of its loss, where the store has forgotten the lock.
func ToldOrGoesOn(_ Subject, o Outcome) error {
	if o.Next != 0 && o.SaidLost == 0 {
		return errors.New("want a holder that learns of its loss, got none")
	}
	return nil
}

func refusesAll(_ Subject, o Outcome) error {
	if o.Late == 0 || o.Refused != o.Late || o.Noticed != o.Late {
		return fmt.Errorf("want each late write refused and each loss known after the pause, got %d and %d of %d", o.Refused, o.Noticed, o.Late)
	}
	return nil
}

func noOverlaps(_ Subject, o Outcome) error {
	if o.Counted.Overlaps > 0 || o.Counted.Done == 0 {
		return fmt.Errorf("want sections that meet nobody, got %d and %d that did", o.Counted.Done, o.Counted.Overlaps)
	}
	return nil
}

// pause stops several processes, each with a key of its own.
func pause(r *Run) (o Outcome, err error) {
	next, err := r.Start(1)
	if err != nil {
		return o, err
	}
	var holders []*Process
	for range r.Pauses {
		p, err := r.Start(0)
		if err != nil {
			return o, err
		}
		holders = append(holders, p)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for i, p := range holders {
		wg.Go(func() {
			token, w, err := paused(p, next, fmt.Sprint(r.Key, ":", i))
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); err != nil {
				return
			}
			if o.Late++; w.Token != 0 && w.Token < token {
				o.Refused++
			}
			if !w.Held {
				o.Noticed++
			}
		})
	}
	wg.Wait()
	return o, errors.Join(errs...)
}

// paused is one pause. It returns the token of the next one, and the write that came late.
func paused(holder, next *Process, key string) (int64, Late, error) {
	if _, err := holder.Lock(key, Patience); err != nil {
		return 0, Late{}, err
	}
	call, w, err := holder.Pause(key)
	if err != nil {
		return 0, Late{}, err
	}
	theirs, err := next.Lock(key, Patience)
	err = errors.Join(err, holder.Continue())
	if err != nil {
		return 0, Late{}, err
	}
	<-call.Done
	return theirs.Token, *w, call.Error
}

func cut(r *Run) (o Outcome, err error) {
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	var all []*Process
	for who := range 3 {
		p, err := r.Start(who % 2)
		if err != nil {
			return o, err
		}
		all = append(all, p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			r.Cut()
		}
	}()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, p := range all {
		wg.Go(func() {
			c, err := p.Work(Sections{Key: r.Key, File: filepath.Join(dir, "inside"), For: 4 * time.Second})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			o.Counted.Done += c.Done
			o.Counted.Overlaps += c.Overlaps
			o.Counted.Failed += c.Failed
			o.Counted.Told += c.Told
			o.Counted.Error = c.Error
		})
	}
	wg.Wait()
	return o, errors.Join(errs...)
}
