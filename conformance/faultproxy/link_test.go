package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
)

// raw is a connection without a client's cleverness.
type raw struct {
	*testing.T
	net.Conn
}

func dial(t *testing.T, p *faultproxy.Proxy) raw {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return raw{t, c}
}

func (r raw) send(cmd string) {
	r.Helper()
	if _, err := r.Write([]byte(cmd + "\r\n")); err != nil {
		r.Fatal(err)
	}
}

// reply is the next line, or the error in its stead.
func (r raw) reply() (string, error) {
	var line []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(line), "\r\n"); line = append(line, b...) {
		if _, err := io.ReadFull(r.Conn, b); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(string(line)), nil
}

func (r raw) says(want string) {
	r.Helper()
	if got, err := r.reply(); err != nil || got != want {
		r.Errorf("the server says %q, %v; want %q", got, err, want)
	}
}

func TestResetBefore(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	rule := f.ResetBefore(faultproxy.MatchCommand("INCRBY"), 1)
	c := dial(t, f.Proxy)
	c.send("INCR " + f.key)
	c.says(":1")
	c.send("INCR " + f.key + "\r\nINCRBY " + f.key + " 10") // one pipeline
	for {
		if _, err := c.reply(); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("INCRBY: %v, want a reset", err)
			}
			break
		}
	}
	usedUp(t, rule)
	eventually(t, "what came before is applied", func() bool { return f.value(t) == 2 })
	if n, err := f.through.IncrBy(t.Context(), f.key, 10).Result(); err != nil || n != 12 {
		t.Errorf("next INCRBY: %d, %v", n, err)
	}
}

func TestResetAfter(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	rule := f.ResetAfter(faultproxy.MatchCommand("INCR"), 1)
	c := dial(t, f.Proxy)
	c.send("INCR " + f.key)
	if got, err := c.reply(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("INCR: %q, %v, want a reset", got, err)
	}
	usedUp(t, rule)
	if n := f.value(t); n != 1 {
		t.Errorf("%d after the reset", n)
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	f.warmUp(t)
	big := strings.Repeat("x", 20_000)
	timed := func() time.Duration {
		start := time.Now()
		if err := f.through.Set(ctx, f.key, big, 0).Err(); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	f.Throttle(100_000)
	if took := timed(); took < 200*time.Millisecond {
		t.Errorf("20 kB at 100 kB a second took %v", took)
	}
	start := time.Now()
	if got, err := f.through.Get(ctx, f.key).Result(); err != nil || got != big || time.Since(start) < 200*time.Millisecond {
		t.Errorf("GET of 20 kB at 100 kB a second: %d bytes, %v, after %v", len(got), err, time.Since(start))
	}
	// A piece at a time, so that it does not outlast the throttling by much.
	f.Throttle(1000)
	done := make(chan time.Duration, 1)
	go func() { done <- timed() }()
	eventually(t, "SET is on the way", func() bool { return f.Count(faultproxy.MatchCommand("SET")) == 2 })
	f.Throttle(0)
	if took := <-done; took > 10*time.Second { // of 20
		t.Errorf("unthrottled it took %v", took)
	}
}

func TestConns(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	a, b := dial(t, f.Proxy), dial(t, f.Proxy)
	b.send("SUBSCRIBE " + f.key)
	a.send("CLIENT ID")
	if _, err := a.reply(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the proxy knows all of two connections", func() bool {
		conns := f.Conns()
		return len(conns) == 2 && !slices.ContainsFunc(conns, func(c faultproxy.Conn) bool { return c.ServerAddr == "" }) &&
			slices.ContainsFunc(conns, faultproxy.Subscribed) && slices.ContainsFunc(conns, faultproxy.Normal)
	})
	for i, c := range f.Conns() {
		if c.ID != int64(i+1) {
			t.Errorf("connection %d has the ID %d", i, c.ID)
		}
		own := b
		if !c.Subscribed {
			own = a
		}
		if c.ClientAddr != own.LocalAddr().String() {
			t.Errorf("the client's address is %s, not %s", c.ClientAddr, own.LocalAddr())
		}
		// The server's word for it.
		list, err := f.direct.ClientList(t.Context()).Result()
		if err != nil || !strings.Contains(list, " addr="+c.ServerAddr+" ") {
			t.Errorf("CLIENT LIST has no %s: %v", c.ServerAddr, err)
		}
	}
	_ = a.Close()
	_ = b.Close()
	eventually(t, "closed connections are gone", func() bool { return len(f.Conns()) == 0 })
}

func TestOnly(t *testing.T) {
	t.Parallel()
	f := setUp(t, 3)
	a, b := dial(t, f.Proxy), dial(t, f.Proxy)
	for _, c := range []raw{a, b} {
		c.send("PING")
		c.says("+PONG")
	}
	ofA := f.Only(faultproxy.ByAddr(a.LocalAddr().String()))
	drop := ofA.Only(faultproxy.Normal).Duplicate(faultproxy.MatchCommand("INCR"), 1)
	b.send("INCR " + f.key)
	b.says(":1")
	a.send("INCR " + f.key)
	a.says(":3")
	usedUp(t, drop)

	ofA.Blackhole(true)
	a.send("INCR " + f.key)
	b.send("GET " + f.key)
	b.says("$1")
	b.says("3")
	ofA.Blackhole(false)
	a.says(":4")

	if n := ofA.Reset(); n != 1 {
		t.Errorf("%d connections were reset", n)
	}
	if _, err := a.reply(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the reset: %v", err)
	}
	b.send("PING")
	b.says("+PONG")
	if n := f.Only(faultproxy.ByID(f.Conns()[0].ID)).Cut(); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := b.reply(); err == nil {
		t.Error("a connection goes on after it was cut")
	}
}

// Messages are lost while commands pass.
func TestOnlySubscribed(t *testing.T) {
	t.Parallel()
	f, ctx := setUp(t, 3), t.Context()
	sub := f.through.Subscribe(ctx, f.key)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	messages := f.Only(faultproxy.Subscribed)
	messages.Blackhole(true)
	if err := f.through.Publish(ctx, f.key, "hello").Err(); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.ReceiveTimeout(ctx, 100*time.Millisecond); !isTimeout(err) {
		t.Fatalf("received %v, %v in a black hole", m, err)
	}
	messages.Cut()
	messages.Blackhole(false)
	if n, err := f.through.Incr(ctx, f.key+"n").Result(); err != nil || n != 1 {
		t.Errorf("INCR: %d, %v", n, err)
	}
	// A connection that has subscribed can still be reset before a command.
	again := f.through.Subscribe(ctx, f.key)
	defer again.Close()
	if _, err := again.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	rule := messages.ResetBefore(faultproxy.MatchCommand("PING"), 1)
	if err := again.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	usedUp(t, rule)
	if _, err := again.ReceiveTimeout(ctx, 5*time.Second); err == nil || isTimeout(err) {
		t.Errorf("after the reset: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	p := faultproxy.Start(t, redistest.Shared(t).Socket())
	c := dial(t, p)
	c.send("PING")
	c.says("+PONG")
}

func TestNewAndClose(t *testing.T) {
	t.Parallel()
	p, err := faultproxy.New(redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.Blackhole(true) // it must not keep Close
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err == nil {
		t.Error("the proxy serves after Close")
	}
}

func TestNonsense(t *testing.T) {
	t.Parallel()
	for what, sent := range map[string]string{
		"an argument that is no string": "*1\r\n:1",
		"a length that is none":         "*1\r\n$x",
		"a length beyond any":           "*1\r\n$9999999999999",
	} {
		p, err := faultproxy.New(redistest.Shared(t).Addr())
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, p)
		c.send(sent)
		if got, err := c.reply(); err == nil {
			t.Errorf("%s: the proxy has passed on %q", what, got)
		}
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), "protocol") {
			t.Errorf("%s: Close says %v", what, err)
		}
	}
}
