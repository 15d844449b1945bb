package redisconformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// The harness's [conformance.ServerFaults], for deployments of one server.

// onAll runs f for each server at the same time.
func (h *harness) onAll(f func(*redistest.Server) error) error {
	errs := make([]error, len(h.nodes))
	var wg sync.WaitGroup
	for i, s := range h.nodes {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (h *harness) Persist() error { return h.onAll((*redistest.Server).Persist) }

func (h *harness) Crash() error {
	return h.onAll(func(s *redistest.Server) error {
		s.Kill()
		return nil
	})
}

func (h *harness) CutConnections() error {
	ctx := context.Background()
	return h.masters(ctx, func(ctx context.Context, c *redis.Client) error {
		for _, kind := range []string{"pubsub", "normal"} {
			if err := c.ClientKillByFilter(ctx, "TYPE", kind).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// later stops rules at Heal or Recover.
func (h *harness) later(rules ...*faultproxy.Rule) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules = append(h.rules, rules...)
}

func (h *harness) Cause(name string) error {
	for _, tr := range troubles {
		if tr.Name != name {
			continue
		}
		for _, s := range h.nodes {
			end, err := tr.begin(context.Background(), s.Options())
			if end != nil {
				h.mu.Lock()
				h.ends = append(h.ends, end)
				h.mu.Unlock()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	return fmt.Errorf("no such trouble: %s", name)
}

func (h *harness) Recover() error {
	h.mu.Lock()
	ends := h.ends
	h.ends = nil
	h.mu.Unlock()
	var errs []error
	for _, end := range ends {
		errs = append(errs, end())
	}
	errs = append(errs, h.onAll((*redistest.Server).Revive), h.Heal())
	return errors.Join(errs...)
}

// trouble is one, and how a server gets into it. begin returns how it gets out of it
// again, even if it fails.
type trouble struct {
	conformance.Trouble
	begin func(ctx context.Context, o *redis.Options) (end func() error, err error)
	since [2]int // major and minor version of the first Redis that has what it needs
}

var troubles = []trouble{
	{conformance.Trouble{Name: "OutOfMemory", Permanent: true, Words: "OOM"}, setting("maxmemory", "1", "0"), [2]int{6, 0}},
	{conformance.Trouble{Name: "CannotPersist", Permanent: true, Words: "MISCONF"}, cannotPersist, [2]int{6, 0}},
	{conformance.Trouble{Name: "NoPermission", Permanent: true, Words: "NOPERM"}, noPermission, [2]int{6, 0}},
	{conformance.Trouble{Name: "ReadOnly", Words: "READONLY"}, readOnly, [2]int{6, 0}},
	{conformance.Trouble{Name: "Loading", Words: "LOADING"}, loading, [2]int{7, 0}},
	{conformance.Trouble{Name: "Paused"}, paused, [2]int{6, 2}},
}

// troubleCases returns the cases of [conformance.TroubleCases] for a Redis.
func troubleCases() []conformance.Case {
	var all []conformance.Trouble
	for _, tr := range troubles {
		if redistest.AtLeast(tr.since[0], tr.since[1]) {
			all = append(all, tr.Trouble)
		}
	}
	return conformance.TroubleCases(all...)
}

// commands runs commands one by one, each on a connection of its own: what they do
// may end it.
func commands(ctx context.Context, o *redis.Options, cmds ...string) error {
	c := redis.NewClient(o)
	defer c.Close()
	for _, cmd := range cmds {
		var args []any
		for arg := range strings.FieldsSeq(cmd) {
			args = append(args, arg)
		}
		if err := c.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
	}
	return nil
}

// reverting returns a function that ends a trouble by commands.
func reverting(o *redis.Options, cmds ...string) func() error {
	return func() error { return commands(context.Background(), o, cmds...) }
}

func setting(name, value, before string) func(context.Context, *redis.Options) (func() error, error) {
	return func(ctx context.Context, o *redis.Options) (func() error, error) {
		return reverting(o, "config set "+name+" "+before), commands(ctx, o, "config set "+name+" "+value)
	}
}

// cannotPersist makes the server fail to save its data: a directory stands where the file
// is to go.
func cannotPersist(ctx context.Context, o *redis.Options) (func() error, error) {
	c := redis.NewClient(o)
	defer c.Close()
	dir, err := c.ConfigGet(ctx, "dir").Result()
	if err != nil {
		return nil, err
	}
	inTheWay := filepath.Join(dir["dir"], "dump.rdb")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		return nil, err
	}
	end := func() error {
		return errors.Join(os.Remove(inTheWay), commands(context.Background(), o, "config set stop-writes-on-bgsave-error no"))
	}
	// It is to save on its own, or it would not mind that it cannot.
	if err := c.ConfigSet(ctx, "save", "3600 1000000").Err(); err != nil {
		return end, err
	}
	if err := commands(ctx, o, "bgsave"); err != nil {
		return end, err
	}
	return end, eventually(ctx, "the server has failed to save", func() (bool, error) {
		info, err := c.Info(ctx, "persistence").Result()
		return strings.Contains(info, "rdb_last_bgsave_status:err"), err
	})
}

func eventually(ctx context.Context, what string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		ok, err := cond()
		if ok {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

func noPermission(ctx context.Context, o *redis.Options) (func() error, error) {
	return reverting(o, "acl setuser default +eval +evalsha"), commands(ctx, o, "acl setuser default -eval -evalsha")
}

// readOnly makes the server a replica of one that does not exist.
func readOnly(ctx context.Context, o *redis.Options) (func() error, error) {
	return reverting(o, "replicaof no one"), commands(ctx, o, "replicaof 127.0.0.1 1")
}

func paused(ctx context.Context, o *redis.Options) (func() error, error) {
	// (Writes: a server that pauses everything does not hear that it may go on.)
	return reverting(o, "client unpause"), commands(ctx, o, "client pause 600000 write")
}

// loading makes the server read its data anew, slowly.
func loading(ctx context.Context, o *redis.Options) (func() error, error) {
	err := commands(ctx, o, "debug populate 200 filling 1024", "config set rdbcompression no",
		"config set loading-process-events-interval-bytes 1024", "config set key-load-delay 50000")
	end := reverting(o, "config set key-load-delay 0")
	if err != nil {
		return end, err
	}
	loaded := make(chan error, 1)
	go func() {
		slow := *o
		slow.ReadTimeout, slow.MaxRetries = time.Minute, -1
		loaded <- commands(context.Background(), &slow, "debug reload")
	}()
	end = func() error {
		err := commands(context.Background(), o, "config set key-load-delay 0")
		return errors.Join(err, <-loaded)
	}
	c := redis.NewClient(o)
	defer c.Close()
	return end, eventually(ctx, "the server is loading", func() (bool, error) {
		err := c.Ping(ctx).Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING"), err
	})
}
