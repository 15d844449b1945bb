package faultproxy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
)

// A fixture is a proxy before the shared server, a client through it, a client
// past it, and a key of its own: the server outlives the test.
type fixture struct {
	*faultproxy.Proxy
	through, direct *redis.Client
	key             string
}

func setUp(t *testing.T, protocol int) fixture {
	t.Helper()
	s := redistest.Shared(t)
	f := fixture{Proxy: faultproxy.Start(t, s.Addr()), direct: s.Client(t), key: rand.Text()}
	f.through = f.client(t, protocol)
	return f
}

func (f fixture) client(t *testing.T, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:                  f.Addr(),
		Protocol:              protocol,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// warmUp leaves a connection in the client's pool.
func (f fixture) warmUp(t *testing.T) {
	t.Helper()
	if err := f.through.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// value is what the server has at the key.
func (f fixture) value(t *testing.T) int {
	t.Helper()
	n, err := f.direct.Get(t.Context(), f.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

// eventually polls.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) { // the server reports no event
		if time.Now().After(deadline) {
			t.Fatalf("not within 5s: %s", what)
		}
	}
}

// usedUp waits for the last firing of the rule.
func usedUp(t *testing.T, r *faultproxy.Rule) {
	t.Helper()
	select {
	case <-r.Done():
	case <-time.After(5 * time.Second):
		t.Fatalf("the rule fired %d times only", r.Fired())
	}
}

// short is time enough for a command on a warm connection.
func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// protocols runs test under RESP2 and RESP3.
func protocols(t *testing.T, test func(t *testing.T, protocol int)) {
	t.Helper()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

func TestPassesOn(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, protocol int) {
		f, ctx := setUp(t, protocol), t.Context()
		big := string(make([]byte, 200_000)) + "\r\n*2\r\n"
		if err := f.through.HSet(ctx, f.key, "a", big, "b", "").Err(); err != nil {
			t.Fatal(err)
		}
		all, err := f.through.HGetAll(ctx, f.key).Result() // a map in RESP3
		if err != nil || len(all) != 2 || all["a"] != big || all["b"] != "" {
			t.Errorf("HGETALL: %d fields, %v", len(all), err)
		}
		if err := f.through.Get(ctx, f.key+"none").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("GET of no key: %v", err)
		}
		if err := f.through.Get(ctx, f.key).Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("GET of a hash: %v", err)
		}
		nested, err := f.through.Eval(ctx, "return {1, {2, false}, 'x'}", nil).Result()
		if got := fmt.Sprint(nested); err != nil || got != "[1 [2 <nil>] x]" {
			t.Errorf("EVAL: %s, %v", got, err)
		}
		if err := f.through.Do(ctx, "BLPOP", f.key+"list", "0.01").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("BLPOP of nothing: %v", err)
		}
	})
}

func TestCounts(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	f.through.Set(ctx, f.key, 1, 0)
	_, err := f.through.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 50 {
			p.Incr(ctx, f.key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Count(faultproxy.MatchCommand("incr", "decr")); n != 50 {
		t.Errorf("%d INCR, want 50", n)
	}
	if n := f.Count(faultproxy.MatchContains(f.key)); n != 51 {
		t.Errorf("%d commands with the key, want 51", n)
	}
	if n := f.RoundTrips(); n != 2 {
		t.Errorf("%d round trips, want 2", n)
	}
	f.ResetCounts()
	f.through.Get(ctx, f.key)
	if got := f.Commands(); len(got) != 1 || got[0] != "get "+f.key {
		t.Errorf("commands %q", got)
	}
}

func TestPubSub(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, protocol int) {
		f, ctx := setUp(t, protocol), t.Context()
		held := f.Delay(faultproxy.MatchCommand("SUBSCRIBE"), 0, 20*time.Millisecond)
		sub := f.through.Subscribe(ctx, f.key, f.key+"2")
		defer sub.Close()
		for range 2 {
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if held.Fired() != 1 {
			t.Errorf("SUBSCRIBE was delayed %d times", held.Fired())
		}
		// Not for connections that have subscribed: nothing here is a reply.
		f.DropReply(faultproxy.MatchAny, 1)
		if err := sub.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		if err := sub.PSubscribe(ctx, f.key+"*"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Pong", "psubscribe"} {
			got, err := sub.Receive(ctx)
			if err != nil {
				t.Fatalf("instead of %s: %v", want, err)
			}
			if _, pong := got.(*redis.Pong); pong != (want == "Pong") {
				t.Fatalf("%v instead of %s", got, want)
			}
		}
		for range 3 {
			f.direct.Publish(ctx, f.key, "hello")
			for range 2 { // for the channel and the pattern
				if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
					t.Fatalf("received %v, %v", m, err)
				}
			}
		}
		f.Cut()
		if _, err := sub.ReceiveTimeout(ctx, 5*time.Second); err == nil || isTimeout(err) {
			t.Errorf("after the cut: %v", err)
		}
	})
}

// TestPush has pushes come between a client's commands and their replies.
func TestPush(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	conn := f.through.Conn()
	defer conn.Close()
	if err := conn.Do(ctx, "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", f.key).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := f.direct.Incr(ctx, f.key).Err(); err != nil { // pushes an invalidation
			t.Fatal(err)
		}
		if n, err := conn.Get(ctx, f.key).Int(); err != nil || n != i+1 {
			t.Fatalf("GET %d: %d, %v", i, n, err)
		}
	}
}
