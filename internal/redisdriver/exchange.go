package redisdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// send sends a batch and tells its callers. Where the server does not know a script, the
// first command that runs it teaches it and the others follow behind.
func (l *lane) send(batch []*flight) {
	l.reach(batch)
	var unknown []*flight
	for _, f := range batch {
		if isNoScript(f.cmd.Err()) {
			unknown = append(unknown, f)
		}
	}
	if len(unknown) > 0 {
		taught := make(map[*Script]bool)
		to, _ := l.way()
		l.exchange(to, unknown, func(s *Script, ctx context.Context, in input) noRetry {
			if taught[s] {
				return s.bySHA(ctx, in)
			}
			taught[s] = true
			return s.bySource(ctx, in)
		})
	}
	kept := batch[:0]
	for _, f := range batch {
		err := f.cmd.Err()
		if l.cluster != nil && isElsewhere(err) {
			go func() {
				f.reply, f.err = f.script.run(context.Background(), l.cluster, f.in.plain())
				l.answered([]*flight{f})
			}()
			continue
		}
		relearn(l.cluster, err)
		f.reply, f.err = f.cmd.Val(), l.classify(err)
		kept = append(kept, f)
	}
	l.answered(kept)
}

// reach sends a batch, at first by whichever client can connect: a hook of the caller's
// may know the way to the server where a copy of the client's options does not.
func (l *lane) reach(batch []*flight) {
	to, known := l.way()
	l.exchange(to, batch, (*Script).bySHA)
	connects := !isDial(batch[0].cmd.Err())
	switch {
	case known && connects:
		return
	case connects:
		l.found(to)
		return
	}
	l.searching.Lock()
	defer l.searching.Unlock()
	switch now, known := l.way(); {
	case known && now == to || l.other == nil:
		return // the server is away
	case known:
		l.exchange(now, batch, (*Script).bySHA)
	default:
		other := l.other()
		l.exchange(other, batch, (*Script).bySHA)
		if !isDial(batch[0].cmd.Err()) {
			l.found(other)
		}
	}
}

func (l *lane) way() (to server, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to, l.known
}

func (l *lane) found(to server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to != l.to {
		l.direct = nil // it goes the way of l.to
	}
	l.to, l.known = to, true
}

// exchange sends commands and reads their answers.
func (l *lane) exchange(to server, fs []*flight, cmd func(*Script, context.Context, input) noRetry) {
	ctx := context.Background()
	for _, f := range fs {
		f.cmd = cmd(f.script, ctx, f.in)
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

// isElsewhere tells answers, and the end of a client, that say that another node of a
// cluster is the right one.
func isElsewhere(err error) bool {
	var server redis.Error
	if err == nil || !errors.As(err, &server) {
		return errors.Is(err, redis.ErrClosed)
	}
	switch errorCode(server.Error()) {
	case "MOVED", "ASK", "READONLY":
		return true
	}
	return false
}

// classify is classify, where it is known whether the client is a cluster's.
func (l *lane) classify(err error) error {
	var server redis.Error
	if err != nil && l.cluster == nil && errors.As(err, &server) {
		switch errorCode(server.Error()) {
		case "MOVED", "ASK", "CROSSSLOT":
			return &driver.StoreError{
				Err:       fmt.Errorf("%w: the server is a node of a cluster; use a redis.ClusterClient", err),
				Permanent: true, NotApplied: true,
			}
		}
	}
	return classify(err)
}
