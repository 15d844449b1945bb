//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"sync"
	"syscall"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/sqlservers"
)

// count starts the stores, and has n writers paused, some at the same time.
func count(ctx context.Context, n, writers int) (*counts, error) {
	at, stop, err := launch()
	if err != nil {
		return nil, err
	}
	defer stop()
	resources, closeAll, err := at.open()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	for _, r := range resources {
		if r.create != nil {
			if err := r.create(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	l, closeLocker, err := newLocker(at.Redis)
	if err != nil {
		return nil, err
	}
	defer closeLocker()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := &observer{l: l, resources: resources, counts: &counts{refused: make(map[string]int), wrote: make(map[string]int)}}
	var all sync.WaitGroup
	for i := range writers {
		cfg := writerConfig{Addresses: at}
		for k := i; k < n; k += writers {
			cfg.Keys = append(cfg.Keys, fmt.Sprintf("pause/%d", k))
		}
		all.Go(func() {
			if err := o.accompany(ctx, cfg); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	all.Wait()
	return o.counts, context.Cause(ctx)
}

// launch starts the stores, and the service.
func launch() (at addresses, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, db := range []struct {
		start func() (*sqlservers.Server, error)
		at    *[2]string
	}{{sqlservers.Postgres, &at.Postgres}, {sqlservers.MariaDB, &at.MariaDB}} {
		s, err := db.start()
		if err != nil {
			return at, nil, err
		}
		stops = append(stops, s.Stop)
		*db.at = [2]string{s.Driver, s.DSN}
	}
	redis, stopRedis, err := redistest.Launch()
	if err != nil {
		return at, nil, err
	}
	stops = append(stops, stopRedis)
	web := httptest.NewServer(service())
	stops = append(stops, web.Close)
	at.Redis, at.HTTP = redis.Addr(), web.URL
	return at, stop, nil
}

// observer is the later owner of each lock, and sees what the earlier one does.
type observer struct {
	l         locker.Locker
	resources []resource
	counts    *counts
}

// accompany starts a writer, and is the later owner of its keys.
func (o *observer) accompany(ctx context.Context, cfg writerConfig) error {
	c, err := child.Start(writerKind, cfg, func(cmd *exec.Cmd) error {
		// In a process group of its own a writer that is stopped goes on when this process dies, however
		// it does, and ends with its standard input.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd.Start()
	})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, c.Kill)()
	reports := json.NewDecoder(c)
	for _, key := range cfg.Keys {
		if err := o.pause(ctx, c.Process.Pid, key, reports); err != nil {
			c.Kill()
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return c.Wait()
}

// pause is one pause of a writer.
func (o *observer) pause(ctx context.Context, pid int, key string, reports *json.Decoder) error {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		return fmt.Errorf("the writer did not stop but %v: %w", status, err)
	}
	// The lock is granted when the lease of the one that is stopped is over.
	lease, err := o.l.Lock(ctx, key)
	if err != nil {
		return err
	}
	for _, r := range o.resources {
		if err := r.put(ctx, key, lease.Token(), "second"); err != nil {
			return fmt.Errorf("%s: the later owner: %w", r.name, err)
		}
	}
	if err := lease.Unlock(ctx); err != nil && !errors.Is(err, locker.ErrLost) { // a busy machine
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return err
	}
	var what late
	if err := reports.Decode(&what); err != nil {
		return fmt.Errorf("the writer did not report: %w", err)
	}
	if what.Key != key || what.Token >= lease.Token() || !what.Lost {
		return fmt.Errorf("no late writer, as the later token is %d: %+v", lease.Token(), what)
	}
	for _, r := range o.resources {
		value, err := r.get(ctx, key)
		want := map[bool]string{true: "second", false: "first"}[what.Refused[r.name]]
		if err == nil && value != want {
			err = fmt.Errorf("want %q, got %q", want, value)
		}
		if err != nil {
			return fmt.Errorf("%s, refused: %v: %w", r.name, what.Refused[r.name], err)
		}
		o.counts.add(r.name, what.Refused[r.name])
	}
	return nil
}
