package redisconformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/redis/go-redis/v9"
)

// existing returns the deployment of a server that is there already.
func existing(tb testing.TB, o *redis.Options) *deployment {
	tb.Helper()
	c := redis.NewClient(copyOf(o))
	tb.Cleanup(func() { _ = c.Close() })
	d := &deployment{server: o, direct: c, proxies: make(map[string]*faultproxy.Proxy)}
	if o.TLSConfig == nil && o.Network != "unix" {
		p := faultproxy.Start(tb, o.Addr)
		p.Record(false)
		d.proxies[o.Addr] = p
	}
	return d
}

// options returns the options of a client of the one server, through its proxy if there is one.
func (d *deployment) options() *redis.Options {
	o := &redis.Options{}
	if d.server != nil {
		o = copyOf(d.server)
	}
	for _, p := range d.proxies {
		o.Addr = p.Addr()
	}
	return o
}

// ownMark makes a mark for one harness of several on a server.
func ownMark(mark string) string {
	if mark == "" {
		return ""
	}
	return fmt.Sprintf("%s%x:", mark, rand.Uint64())
}

// copyOf is for another client: one fills in its options.
func copyOf(o *redis.Options) *redis.Options {
	c := *o
	return &c
}

// KeyMark is in every key that the cases use, and in no others: Keys and
// Flush are about these only.
func (h *harness) KeyMark() string { return h.Mark }

// KeyMark is KeyMark of each server's harness.
func (h *quorumHarness) KeyMark() string { return h.Mark }

// flushOwn deletes the keys that have the mark.
func (h *harness) flushOwn(ctx context.Context) error {
	keys, err := h.Keys(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := h.direct.Unlink(ctx, k.Name).Err(); err != nil {
			return err
		}
	}
	return nil
}
