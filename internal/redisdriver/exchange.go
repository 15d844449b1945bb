package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// batchTimeout returns how long a batch may take to be connected, sent and answered. No part
// of it is written later, so a command whose caller has returned is on the wire by then, or
// never will be.
func (l *lane) batchTimeout() time.Duration {
	if l.to == nil { // it sends no batches
		return controlTimeout + time.Second
	}
	o := l.to.Options()
	return max(dialTimeout(o.DialTimeout), readTimeout(o.ReadTimeout)) + time.Second
}

// send sends a batch and tells its callers. Where the server does not know a script, the
// first command that runs it teaches it and the others follow behind.
func (l *lane) send(batch []*flight) {
	end := time.Now().Add(l.batchTimeout())
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	exchange(ctx, l.to, batch, false)
	var unknown []*flight
	for _, f := range batch {
		if isNoScript(f.cmd.Err()) {
			unknown = append(unknown, f)
		}
	}
	if len(unknown) > 0 {
		exchange(ctx, l.to, unknown, true)
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
	if isEnd(err) && l.to != nil && !l.given {
		return notSent(err) // go-redis looks at the context where it waits for a connection
	}
	return classify(err)
}

func isEnd(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
