//go:build unix

package report

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/child"
)

const workerKind = "report worker"

// workerSpec holds what a process is started with.
type workerSpec struct {
	Subject string
	Target  Target
	TTL     time.Duration
}

// Serve does not return in a process that [Start] has started.
func Serve(subjects []Subject) {
	child.Serve(workerKind, func(parent child.Parent, spec workerSpec) error {
		i := slices.IndexFunc(subjects, func(s Subject) bool { return s.Name == spec.Subject })
		if i < 0 {
			return fmt.Errorf("there is no subject %q", spec.Subject)
		}
		open := func() (Client, error) { return subjects[i].Open(spec.Target, spec.TTL) }
		server := rpc.NewServer()
		if err := server.Register(&Worker{subject: subjects[i], open: open, held: map[string]*watched{}}); err != nil {
			return err
		}
		server.ServeConn(parent)
		return nil
	})
}

// Worker is the process's side. Its methods are called by its parent, some at the same time.
type Worker struct {
	subject Subject
	open    func() (Client, error)

	mu     sync.Mutex
	client Client
	held   map[string]*watched
}

// watched is a lock, and what its library answered so far.
type watched struct {
	Held
	stop context.CancelFunc

	mu    sync.Mutex
	state State
}

// State is what the library answered the holder. Times are of the clock that the processes of a
// machine share.
type State struct {
	Token    int64
	Granted  time.Time
	LastHeld time.Time // the last question that was answered by "held" was asked
	SaidLost time.Time // the first answer of "lost" was there
	Silent   int       // questions without an answer
}

// Request is for a lock.
type Request struct {
	Key  string
	Wait time.Duration
}

// connect makes the client, once.
func (w *Worker) connect() (Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client == nil {
		client, err := w.open()
		if err != nil {
			return nil, err
		}
		w.client = client
	}
	return w.client, nil
}

// Lock takes a lock, and asks from then on whether it is held.
func (w *Worker) Lock(r Request, out *State) error {
	client, err := w.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	patience := time.AfterFunc(r.Wait, cancel) // it bounds the wait, not the lock
	h, err := client(ctx, r.Key)
	granted := time.Now()
	if !patience.Stop() && err == nil {
		err = errors.New("it was granted too late")
	}
	if err != nil {
		cancel()
		return err
	}
	asking, stop := context.WithCancel(context.Background())
	l := &watched{Held: h, stop: func() { stop(); cancel() }, state: State{Token: h.Token, Granted: granted}}
	w.mu.Lock()
	w.held[r.Key] = l
	w.mu.Unlock()
	go l.ask(asking, w.subject.Remote)
	*out = l.state
	return nil
}

// ask asks until the answer is "lost".
func (l *watched) ask(ctx context.Context, remote bool) {
	every := 2 * time.Millisecond
	if remote {
		every = 20 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		asked := time.Now()
		held, err := l.Holds(ctx)
		answered := time.Now()
		l.mu.Lock()
		switch {
		case err != nil:
			l.state.Silent++
		case held:
			l.state.LastHeld = asked
		default:
			l.state.SaidLost = answered
		}
		over := err == nil && !held
		l.mu.Unlock()
		if over {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Worker) of(key string) (*watched, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.held[key]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%s was never locked here", key)
}

// State returns what the library has answered so far.
func (w *Worker) State(key string, out *State) error {
	l, err := w.of(key)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	*out = l.state
	return nil
}

// Unlock gives the lock back.
func (w *Worker) Unlock(key string, _ *struct{}) error {
	l, err := w.of(key)
	if err != nil {
		return err
	}
	defer l.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return l.Unlock(ctx)
}

// Late is a write that a process was stopped before.
type Late struct {
	Token int64 // that it carries
	Held  bool  // the answer to the first question after the pause
}

// Pause asks whether the lock is held, stops this process, and returns when it goes on, with the
// write that it was about to make.
func (w *Worker) Pause(key string, out *Late) error {
	l, err := w.of(key)
	if err != nil {
		return err
	}
	if held, err := l.Holds(context.Background()); err != nil || !held {
		return errors.Join(errors.New("the lock is lost before the pause"), err)
	}
	// This thread may go on for some time before the signal has stopped it.
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-goOn
	out.Token = l.Token
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out.Held, _ = l.Holds(ctx)
	return nil
}

// Sections is work on one key: in each section a file is made that nobody else may have made.
type Sections struct {
	Key, File string
	For       time.Duration
}

// Counted is how it went.
type Counted struct {
	Done, Overlaps, Failed int
	Told                   int    // sections at whose end the library said that the lock was lost
	Error                  string // the first one
}

// Work locks, and unlocks, again and again.
func (w *Worker) Work(s Sections, out *Counted) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.For)
	defer cancel()
	var client Client
	err := Again(ctx, func() (err error) { client, err = w.connect(); return err }) // its connection may be reset, too
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		h, err := client(ctx, s.Key)
		if err == nil {
			inside(s.File, out)
			if held, err := h.Holds(ctx); err == nil && !held {
				out.Told++
			}
			ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err = h.Unlock(ending)
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			if out.Failed++; out.Error == "" {
				out.Error = err.Error()
			}
			time.Sleep(5 * time.Millisecond) // a caller that tries again does not do so in a tight loop
		}
	}
	return nil
}

// inside does a section.
func inside(file string, out *Counted) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		out.Overlaps++
		return
	}
	_ = f.Close()
	time.Sleep(time.Millisecond)
	_ = os.Remove(file)
	out.Done++
}
