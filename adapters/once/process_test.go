package once_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy"
)

// shopSpec is of a process that takes orders. It prints "handles" before it answers, and "stored" when its answer is. Stops
// says after which of them it does nothing more.
type shopSpec struct {
	URL, Redis, Prefix, Name, Stops string
	TTL, Wait                       time.Duration
}

// step prints what has happened, and does not return if the process is to stop there.
func (s shopSpec) step(p child.Parent, what string) {
	fmt.Fprintln(p, what)
	if s.Stops == what {
		<-context.Background().Done()
	}
}

// storing is a Store that says when it has stored an answer.
type storing struct {
	once.Store
	stored func()
}

func (s storing) Put(ctx context.Context, key string, a once.Answer, ttl time.Duration) error {
	err := s.Store.Put(ctx, key, a, ttl)
	s.stored()
	return err
}

func serveShop(p child.Parent, spec shopSpec) error {
	ctx, stop := p.Context()
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: spec.Redis})
	defer rdb.Close()
	answers, err := once.NewRedis(rdb, spec.Prefix)
	if err != nil {
		return err
	}
	l, release, err := strategy.OpenURL(ctx, spec.URL)
	if err != nil {
		return err
	}
	defer release()
	guard, err := once.New(l, once.WithPrefix(spec.Prefix), once.WithTTL(spec.TTL), once.WithWait(spec.Wait),
		once.WithReplay(storing{answers, func() { spec.step(p, "stored") }}, 1<<10, user))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(p, "http://%s/orders\n", listener.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := rdb.Incr(r.Context(), spec.Prefix+"orders").Result()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		spec.step(p, "handles")
		w.Header().Set("Location", fmt.Sprint("/orders/", n))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d by %s", n, spec.Name)
	}))}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shop is such a process.
type shop struct {
	*child.Child
	lines *bufio.Reader
	url   string
}

func openShop(t *testing.T, spec shopSpec) shop {
	t.Helper()
	c, err := child.Start("shop", spec, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(0) })
	late := time.AfterFunc(time.Minute, c.Kill) // whoever waits for a line learns of it
	t.Cleanup(func() { late.Stop() })
	s := shop{Child: c, lines: bufio.NewReader(c)}
	s.url = s.line(t)
	return s
}

func (s shop) line(t *testing.T) string {
	t.Helper()
	line, err := s.lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

type reply struct {
	status                   int
	body, location, replayed string
	err                      error
}

// order sends the same order as always.
func (s shop) order(t *testing.T) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, nil)
	if err != nil {
		return reply{err: err}
	}
	r.Header.Set(once.HeaderKey, "1")
	r.Header.Set("Authorization", "ann")
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(body), resp.Header.Get("Location"), resp.Header.Get(once.HeaderReplayed), err}
}

// orderThenKill sends the order to a process that stops at a step, and kills it there as kill -9 does: the client gets no
// answer.
func (s shop) orderThenKill(t *testing.T, at ...string) {
	t.Helper()
	answer := make(chan reply)
	go func() { answer <- s.order(t) }()
	for _, want := range at {
		require.Equal(t, want, s.line(t))
	}
	s.Kill()
	require.Error(t, (<-answer).err)
}

// on runs test for each strategy, with the spec of a shop on a Redis.
func on(t *testing.T, test func(t *testing.T, spec shopSpec)) {
	t.Helper()
	server := redistest.Shared(t)
	for _, name := range []string{"setnx", "hashreentrant", "blpop"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shopSpec{URL: name + "+" + server.URL(), Redis: server.Addr(), Prefix: t.Name() + ":", TTL: time.Minute})
		})
	}
}

// A process is killed when it has stored its answer, which the client does not get. Another process gives it that answer.
func TestProcessDiesAfterItHasStoredItsAnswer(t *testing.T) {
	on(t, func(t *testing.T, spec shopSpec) {
		spec.Name, spec.Stops = "the first", "stored"
		first := openShop(t, spec)
		spec.Name, spec.Stops = "the second", ""
		second := openShop(t, spec)
		first.orderThenKill(t, "handles", "stored")
		for range 2 {
			require.Equal(t, reply{http.StatusCreated, "order 1 by the first", "/orders/1", "true", nil}, second.order(t))
		}
	})
}

// A process is killed while it handles an order. Another one refuses the order until the TTL has ended, and handles a
// repetition that waits; a third one repeats that answer.
func TestProcessDiesWhileItHandles(t *testing.T) {
	on(t, func(t *testing.T, spec shopSpec) {
		const ttl = 3 * time.Second
		spec.TTL, spec.Stops = ttl, "handles"
		first := openShop(t, spec)
		spec.TTL, spec.Stops = time.Minute, "" // of their own locks
		impatient := openShop(t, spec)
		spec.Name, spec.Wait = "one that waits", time.Minute
		patient, third := openShop(t, spec), openShop(t, spec)
		began := time.Now()
		first.orderThenKill(t, "handles")
		if refused := impatient.order(t); time.Since(began) < ttl { // else the machine stood still
			require.Equal(t, http.StatusConflict, refused.status)
		}
		handled := patient.order(t)
		require.GreaterOrEqual(t, time.Since(began), ttl)
		require.Equal(t, reply{http.StatusCreated, "order 2 by one that waits", "/orders/2", "", nil}, handled)
		handled.replayed = "true"
		require.Equal(t, handled, third.order(t))
	})
}

// Both Stores keep the answer with the greater token; Redis drops an answer after its TTL, and has none where something else is.
func TestStores(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	inRedis, err := once.NewRedis(rdb, t.Name()+":")
	require.NoError(t, err)
	for name, s := range map[string]once.Store{"memory": newMemory(t, 1<<20), "redis": inRedis} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := s.Get(t.Context(), "k")
			require.NoError(t, err)
			require.False(t, ok)
			a := once.Answer{Status: 201, Header: http.Header{"A": {"1", "2"}}, Body: []byte("\xff\x00 body"), Fingerprint: [32]byte{1, 255}, Token: 1 << 52}
			for range 2 {
				require.NoError(t, s.Put(t.Context(), "k", a, time.Minute))
				late := a
				late.Token, late.Status = a.Token-1, 500
				require.NoError(t, s.Put(t.Context(), "k", late, time.Minute))
				got, ok, err := s.Get(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, a, got)
				a.Token, a.Status = a.Token+1, 202
			}
		})
	}
	left, err := rdb.PTTL(t.Context(), t.Name()+":answer:k").Result()
	require.NoError(t, err)
	require.InDelta(t, time.Minute, left, float64(30*time.Second))
	require.NoError(t, rdb.Set(t.Context(), t.Name()+":answer:k", "x", time.Minute).Err())
	require.Error(t, inRedis.Put(t.Context(), "k", once.Answer{}, time.Minute))
	_, ok, err := inRedis.Get(t.Context(), "k")
	require.Error(t, err)
	require.False(t, ok)
	_, err = once.NewRedis(nil, "")
	require.ErrorIs(t, err, locker.ErrInvalid)
}
