package once_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/strategy/memory"
)

func user(r *http.Request) string { return r.Header.Get("Authorization") }

func newMemory(t *testing.T, size int) *once.Memory {
	t.Helper()
	m, err := once.NewMemory(size)
	require.NoError(t, err)
	return m
}

// created answers 201, a header and a body in two parts.
func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/orders/7")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":`)
	_, _ = io.WriteString(w, `7}`)
}

func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, answers, handled, requests := memory.NewStore(), newMemory(t, 1<<20), 0, 0
		process := func() http.Handler {
			h := guard(t, newLocker(t, store), func(w http.ResponseWriter, r *http.Request) { handled++; created(w, r) },
				once.WithTTL(time.Minute), once.WithReplay(answers, 1<<10, user))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // an outer middleware
				requests++
				w.Header().Set("X-Request-Id", strings.Repeat("i", requests))
				h.ServeHTTP(w, r)
			})
		}
		a, b := process(), process()
		first := serve(a, post("/orders", "1"))
		require.Empty(t, first.Header().Get(once.HeaderReplayed))
		for _, h := range []http.Handler{a, b} {
			again := serve(h, post("/orders", "1"))
			require.Equal(t, http.StatusCreated, again.Code)
			require.Equal(t, `{"id":7}`, again.Body.String())
			require.Equal(t, "/orders/7", again.Header().Get("Location"))
			require.Equal(t, "true", again.Header().Get(once.HeaderReplayed))
			require.Len(t, again.Header().Get("X-Request-Id"), requests, "the outer middleware's own")
		}
		require.Equal(t, 1, handled)
		time.Sleep(time.Minute) // on the bubble's clock: the TTL is over
		require.Empty(t, serve(b, post("/orders", "1")).Header().Get(once.HeaderReplayed))
		require.Equal(t, 2, handled)
	})
}

func TestReplayWhileTheFirstRuns(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := guard(t, newLocker(t, memory.NewStore()), func(w http.ResponseWriter, r *http.Request) {
		created(w, r)
		close(began)
		<-end
	}, once.WithReplay(newMemory(t, 1<<20), 1<<10, user))
	first := make(chan int)
	go func() { first <- serve(h, post("/", "1")).Code }()
	<-began
	require.Equal(t, http.StatusConflict, serve(h, post("/", "1")).Code)
	close(end)
	require.Equal(t, http.StatusCreated, <-first)
	require.Equal(t, http.StatusCreated, serve(h, post("/", "1")).Code)
}

// A client that left before the answer gets it when it asks again.
func TestReplayForAClientThatHadLeft(t *testing.T) {
	handled := 0
	h := guard(t, newLocker(t, memory.NewStore()), func(_ http.ResponseWriter, r *http.Request) { handled++; gone(r) },
		once.WithReplay(newMemory(t, 1<<20), 1<<10, user))
	serve(h, leaving(t, post("/", "1")))
	again := serve(h, post("/", "1"))
	require.Equal(t, http.StatusOK, again.Code)
	require.Equal(t, "true", again.Header().Get(once.HeaderReplayed))
	require.Equal(t, 1, handled)
}

// Another user with the same key is not given the answer.
func TestReplayForAnother(t *testing.T) {
	h := guard(t, newLocker(t, memory.NewStore()), created, once.WithReplay(newMemory(t, 1<<20), 1<<10, user))
	of := func(name string) *http.Request {
		r := post("/", "1")
		r.Header.Set("Authorization", name)
		return r
	}
	require.Equal(t, http.StatusCreated, serve(h, of("ann")).Code)
	bob := serve(h, of("bob"))
	require.Equal(t, http.StatusUnprocessableEntity, bob.Code)
	require.Equal(t, "The idempotency key was used for another request.\n", bob.Body.String())
	require.Empty(t, bob.Header().Get("Location"))
	require.Equal(t, http.StatusCreated, serve(h, of("ann")).Code)
}

// lossy is a Store that fails.
type lossy struct {
	once.Store
	put, get error
}

func (s lossy) Put(ctx context.Context, key string, a once.Answer, ttl time.Duration) error {
	if s.put != nil {
		return s.put
	}
	return s.Store.Put(ctx, key, a, ttl)
}

func (s lossy) Get(ctx context.Context, key string) (once.Answer, bool, error) {
	if s.get != nil {
		return once.Answer{}, false, s.get
	}
	return s.Store.Get(ctx, key)
}

// A request whose answer is not stored is refused as without WithReplay, and one that failed may be tried again.
func TestNoReplay(t *testing.T) {
	body := func(status, n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("x", n))
		}
	}
	for name, c := range map[string]struct {
		h     http.HandlerFunc
		store once.Store
		again int
	}{
		"as long as may be": {body(200, 10), newMemory(t, 1<<20), 200},
		"too long":          {body(200, 11), newMemory(t, 1<<20), 409},
		"no room":           {body(200, 10), newMemory(t, 10), 409},
		"not put":           {body(200, 1), lossy{newMemory(t, 1<<20), errors.New("away"), nil}, 409},
		"not got":           {body(200, 1), lossy{newMemory(t, 1<<20), nil, errors.New("away")}, 409},
		"failed":            {body(500, 1), newMemory(t, 1<<20), 500},
	} {
		t.Run(name, func(t *testing.T) {
			h := guard(t, newLocker(t, memory.NewStore()), c.h, once.WithReplay(c.store, 10, user))
			serve(h, post("/", "1"))
			again := serve(h, post("/", "1"))
			require.Equal(t, c.again, again.Code)
			require.Equal(t, c.again == 200, again.Header().Get(once.HeaderReplayed) != "")
		})
	}
}

// A connection that the handler took over has no answer to replay.
func TestNoReplayOfAHijackedConnection(t *testing.T) {
	s := httptest.NewServer(guard(t, newLocker(t, memory.NewStore()), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}
	}, once.WithReplay(newMemory(t, 1<<20), 10, user)))
	defer s.Close()
	for _, want := range []int{200, 409} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil)
		require.NoError(t, err)
		r.Header.Set(once.HeaderKey, "1")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, want, answer.StatusCode)
	}
}

// A Memory drops what is over, and the oldest when it is full.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 3000)
		put := func(key string, size int, ttl time.Duration) {
			t.Helper()
			require.NoError(t, m.Put(t.Context(), key, once.Answer{Status: 200, Body: make([]byte, size)}, ttl))
		}
		want := func(keys ...string) {
			t.Helper()
			var got []string
			for _, k := range []string{"a", "b", "c", "d"} {
				if _, ok, err := m.Get(t.Context(), k); ok && err == nil {
					got = append(got, k)
				}
			}
			require.Equal(t, keys, got)
		}
		put("a", 1000, time.Minute)
		put("b", 1000, time.Minute)
		put("b", 1000, time.Hour) // in place of the first
		want("a", "b")
		put("c", 1000, time.Hour)
		want("b", "c")
		require.ErrorIs(t, m.Put(t.Context(), "d", once.Answer{Body: make([]byte, 3000)}, time.Hour), locker.ErrInvalid)
		want("b", "c")
		time.Sleep(time.Hour) // on the bubble's clock
		put("d", 1, time.Minute)
		want("d")
	})
}

func TestReplayMisuse(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	for name, o := range map[string]once.Option{
		"no Store":       once.WithReplay(nil, 1, user),
		"no body":        once.WithReplay(newMemory(t, 1), 0, user),
		"no fingerprint": once.WithReplay(newMemory(t, 1), 1, nil),
	} {
		_, err := once.New(l, o)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err := once.NewMemory(0)
	require.ErrorIs(t, err, locker.ErrInvalid)
}

// A flush that the server does not support sends nothing: the status that follows counts.
func TestUnsupportedFlushIsNoAnswer(t *testing.T) {
	t.Parallel()
	l, err := memory.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	guard, err := once.New(l)
	require.NoError(t, err)
	ran := 0
	h := http.TimeoutHandler(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran++
		w.(http.Flusher).Flush()
		http.Error(w, "failed", http.StatusInternalServerError)
	})), time.Minute, "late")
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Equal(t, 2, ran, "the failed request keeps its key")
}

// ends is a Store that notes how long answers are kept from the end of Put.
type ends struct{ until chan time.Time }

func (s ends) Put(ctx context.Context, _ string, _ once.Answer, ttl time.Duration) error {
	<-ctx.Done() // the slowest Put there is
	s.until <- time.Now().Add(ttl)
	return nil
}

func (ends) Get(context.Context, string) (a once.Answer, ok bool, err error) { return a, false, nil }

// An answer ends before its key, however long the Store takes.
func TestAnswerEndsBeforeItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := memory.New()
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		s := ends{make(chan time.Time, 1)}
		guard, err := once.New(l, once.WithTTL(20*time.Second), once.WithReplay(s, 100, func(*http.Request) string { return "" }))
		require.NoError(t, err)
		began := time.Now()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
		require.False(t, (<-s.until).After(began.Add(20*time.Second)))
	})
}

// Bytes beyond the Content-Length reach nobody, and are not replayed.
func TestReplayKeepsContentLength(t *testing.T) {
	t.Parallel()
	l, err := memory.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	store, err := once.NewMemory(1 << 20)
	require.NoError(t, err)
	guard, err := once.New(l, once.WithReplay(store, 100, func(*http.Request) string { return "" }))
	require.NoError(t, err)
	server := httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
		_, _ = io.WriteString(w, "extra")
	})))
	t.Cleanup(server.Close)
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		require.NoError(t, err)
		require.Equal(t, "hello", string(body))
	}
}
