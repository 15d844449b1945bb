//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/strategy/setnx"
)

const writerKind = "writer"

type writerConfig struct {
	Addresses addresses
	Keys      []string // one after the other
}

// late reports what became of a writer's late writes. The writer prints it in a line.
type late struct {
	Key     string
	Token   int64
	Refused map[string]bool // by resource
	Lost    bool            // the lease was lost, as the writer learns after it has written
}

const ttl = 300 * time.Millisecond

func newLocker(addr string) (locker.Locker, func(), error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	l, err := setnx.New(rdb, locker.WithTTL(ttl), locker.WithPrefix("lock:"))
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return l, func() { _, _ = l.Close(), rdb.Close() }, nil
}

// write does the work of a writer. It ends with its standard input.
func write(parent child.Parent, cfg writerConfig) error {
	ctx, cancel := parent.Context()
	defer cancel()
	resources, closeAll, err := cfg.Addresses.open()
	if err != nil {
		return err
	}
	defer closeAll()
	l, closeLocker, err := newLocker(cfg.Addresses.Redis)
	if err != nil {
		return err
	}
	defer closeLocker()
	for _, key := range cfg.Keys {
		what, err := beLate(ctx, l, key, resources)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if err := json.NewEncoder(parent).Encode(what); err != nil {
			return err
		}
	}
	return nil
}

// beLate takes the lock, asks whether it still has it, is stopped, and writes.
func beLate(ctx context.Context, l locker.Locker, key string, resources []resource) (late, error) {
	lease, err := l.Lock(ctx, key)
	for err == nil && lease.Err() != nil { // a busy machine
		lease, err = l.Lock(ctx, key)
	}
	if err != nil {
		return late{}, err
	}
	// This thread may go on for some time before the signal has stopped it.
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return late{}, err
	}
	<-goOn
	// The last thing that this owner has heard is that it has the lock.
	what := late{Key: key, Token: lease.Token(), Refused: make(map[string]bool)}
	for _, r := range resources {
		err := r.put(ctx, key, lease.Token(), "first")
		if what.Refused[r.name] = errors.Is(err, fence.ErrStale); err != nil && !what.Refused[r.name] {
			return what, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	what.Lost = errors.Is(lease.Err(), locker.ErrLost)
	return what, nil
}
