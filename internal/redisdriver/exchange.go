package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// batchTimeout is what a batch gets to be connected, sent, and answered. Nothing of it is
// written later, so what was left behind is on the wire by then or never will be.
const batchTimeout = controlTimeout + time.Second

// send sends a batch and tells its callers. Where the server does not know a script, the
// first command that runs it teaches it and the others follow behind.
func (l *lane) send(batch []*flight) {
	end := time.Now().Add(batchTimeout)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	to := l.reach(ctx, batch)
	var unknown []*flight
	for _, f := range batch {
		if isNoScript(f.cmd.Err()) {
			unknown = append(unknown, f)
		}
	}
	if len(unknown) > 0 {
		exchange(ctx, to, unknown, true)
	}
	kept := batch[:0]
	for _, f := range batch {
		err := f.cmd.Err()
		if l.cluster != nil && isElsewhere(err) {
			if errors.Is(err, redis.ErrClosed) {
				l.close()
			}
			go l.elsewhere(f, end)
			continue
		}
		relearn(l.cluster, err)
		f.reply, f.err = f.cmd.Val(), l.classify(err)
		kept = append(kept, f)
	}
	l.answered(kept)
}

// elsewhere sends f to the node that has its key by now.
func (l *lane) elsewhere(f *flight, end time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	f.reply, f.err = f.script.run(ctx, l.cluster, f.in.plain())
	l.answered([]*flight{f})
}

// way is how a server is reached: by our own client or, if that cannot connect and it can,
// by another: a hook of the caller's may know the way where a copy of the client's options
// does not.
type way struct {
	life      context.Context
	own       *redis.Client
	other     func() *redis.Client // makes it; nil: there is none
	found     atomic.Pointer[redis.Client]
	searching sync.Mutex
}

// isOwn reports whether our own client is known to connect.
func (w *way) isOwn() bool { return w.found.Load() == w.own }

// reach sends a batch, and returns the client that did.
func (l *lane) reach(ctx context.Context, batch []*flight) *redis.Client {
	try := func(ctx context.Context, to *redis.Client) (connects bool) {
		exchange(ctx, to, batch, false)
		return !isDial(batch[0].cmd.Err())
	}
	w := l.way
	if to := w.found.Load(); to != nil || w.other == nil {
		if to == nil {
			to = w.own
		}
		try(ctx, to)
		return to
	}
	half, cancel := context.WithTimeout(ctx, batchTimeout/2)
	defer cancel()
	if try(half, w.own) {
		w.found.Store(w.own)
		return w.own
	}
	w.searching.Lock()
	defer w.searching.Unlock()
	to := w.found.Load()
	if to == nil {
		to = w.other()
	}
	if try(ctx, to) && w.found.CompareAndSwap(nil, to) {
		go w.again()
	}
	return to
}

// again looks whether our own client connects after all: the server may have been away.
func (w *way) again() {
	ctx, cancel := context.WithTimeout(w.life, controlTimeout)
	defer cancel()
	o := w.own.Options()
	if conn, err := o.Dialer(ctx, o.Network, o.Addr); err == nil {
		_ = conn.Close()
		w.found.Store(w.own)
	}
}

// exchange sends commands and reads their answers. teach has the first of each script
// bring it along.
func exchange(ctx context.Context, to *redis.Client, fs []*flight, teach bool) {
	taught := make(map[*Script]bool)
	for _, f := range fs {
		if teach && !taught[f.script] {
			taught[f.script] = true
			f.cmd = f.script.bySource(ctx, &f.made, f.in)
		} else {
			f.cmd = f.script.bySHA(ctx, &f.made, f.in)
		}
	}
	if len(fs) == 1 {
		fs[0].cmd.SetErr(to.Process(ctx, fs[0].cmd))
		return
	}
	pipe := to.Pipeline()
	for _, f := range fs {
		_ = pipe.Process(ctx, f.cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// classify is classify, where it is known whether the client is a cluster's.
func (l *lane) classify(err error) error {
	if _, m, _ := answer(err); m&clustered != 0 && l.cluster == nil {
		return &driver.StoreError{
			Err:       fmt.Errorf("%w: the server is a node of a cluster; use a redis.ClusterClient", err),
			Permanent: true, NotApplied: true,
		}
	}
	if isEnd(err) && (l.cluster != nil || l.way != nil && l.way.isOwn()) {
		return notSent(err) // go-redis looks at the context where it waits for a connection
	}
	return classify(err)
}

func isEnd(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
