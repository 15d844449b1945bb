package once_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

func newLocker(t *testing.T, s *memory.Store, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, err := s.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func guard(t *testing.T, l locker.Locker, h http.HandlerFunc, opts ...once.Option) http.Handler {
	t.Helper()
	wrap, err := once.New(l, opts...)
	require.NoError(t, err)
	return wrap(h)
}

func post(path, key string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	if key != "" {
		r.Header.Set(once.HeaderKey, key)
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestSecondIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, handled := memory.NewStore(), 0
		h := func(w http.ResponseWriter, _ *http.Request) {
			handled++
			w.WriteHeader(http.StatusCreated)
		}
		a := guard(t, newLocker(t, store), h, once.WithTTL(time.Minute))
		b := guard(t, newLocker(t, store), h, once.WithTTL(time.Minute))
		require.Equal(t, http.StatusCreated, serve(a, post("/orders", "1")).Code)
		require.Equal(t, []string{"once:POST /orders 1"}, store.Keys())
		time.Sleep(59 * time.Second) // on the bubble's clock: a second before the TTL ends
		for _, h := range []http.Handler{a, b} {
			w := serve(h, post("/orders", "1"))
			require.Equal(t, http.StatusConflict, w.Code)
			require.Empty(t, w.Header().Get("Retry-After"), "it is not to be sent again")
			require.Equal(t, "This request was submitted before: it may have been handled, or is being handled.\n", w.Body.String())
		}
		require.Equal(t, 1, handled)

		for _, r := range []*http.Request{post("/orders", "2"), post("/refunds", "1"), post("/orders", ""), post("/orders", "")} {
			require.Equal(t, http.StatusCreated, serve(b, r).Code)
		}
		require.Equal(t, 5, handled)

		time.Sleep(2 * time.Second) // the TTL is over, and was not renewed
		require.Equal(t, http.StatusCreated, serve(b, post("/orders", "1")).Code)
	})
}

func TestSecondIsRefusedWhileTheFirstRuns(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := guard(t, newLocker(t, memory.NewStore()), func(http.ResponseWriter, *http.Request) {
		close(began)
		<-end
	})
	first := make(chan int)
	go func() { first <- serve(h, post("/", "1")).Code }()
	<-began
	require.Equal(t, http.StatusConflict, serve(h, post("/", "1")).Code)
	close(end)
	require.Equal(t, http.StatusOK, <-first)
}

// Requests of one user, whom an outer middleware has named, do not share their locks.
func TestNamedOwner(t *testing.T) {
	h := guard(t, newLocker(t, memory.NewStore()), func(http.ResponseWriter, *http.Request) {})
	for _, want := range []int{http.StatusOK, http.StatusConflict} {
		r := post("/", "1")
		require.Equal(t, want, serve(h, r.WithContext(locker.ContextWithOwner(r.Context(), "ann"))).Code)
	}
}

func TestFailedMayTryAgain(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"500":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"422":           func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) },
		"500 after 103": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(500) },
		"panic":         func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"late panic":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) },
		"client gone":   func(w http.ResponseWriter, r *http.Request) { gone(r); w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(name, func(t *testing.T) {
			store, handled := memory.NewStore(), 0
			h := guard(t, newLocker(t, store), func(w http.ResponseWriter, r *http.Request) {
				if handled++; handled == 1 {
					answer(w, r)
				}
			})
			func() {
				defer func() { require.Equal(t, strings.HasSuffix(name, "panic"), recover() != nil) }()
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), goneKey{}, new(context.CancelFunc)))
				defer cancel()
				*ctx.Value(goneKey{}).(*context.CancelFunc) = cancel
				serve(h, post("/", "1").WithContext(ctx))
			}()
			require.Empty(t, store.Keys())
			require.Equal(t, http.StatusOK, serve(h, post("/", "1")).Code)
			require.Equal(t, http.StatusConflict, serve(h, post("/", "1")).Code)
		})
	}
}

type goneKey struct{}

// gone ends the context of a request, as its client's hanging up does.
func gone(r *http.Request) { (*r.Context().Value(goneKey{}).(*context.CancelFunc))() }

func TestKept(t *testing.T) {
	h := guard(t, newLocker(t, memory.NewStore()), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		once.WithKept(func(status int) bool { return status == 502 }))
	require.Equal(t, 502, serve(h, post("/", "1")).Code)
	require.Equal(t, http.StatusConflict, serve(h, post("/", "1")).Code)
}

// The context of a handler that takes longer than the TTL ends before the next one begins.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory.NewStore(), locker.WithMaxHold(time.Second)) // which counts for nothing
		began := time.Now()
		h := guard(t, l, func(_ http.ResponseWriter, r *http.Request) {
			lease, ok := locker.LeaseFromContext(r.Context())
			require.True(t, ok)
			require.Positive(t, lease.Token())
			<-r.Context().Done()
			require.ErrorIs(t, context.Cause(r.Context()), locker.ErrLost)
			require.Less(t, time.Since(began), time.Minute)
		}, once.WithTTL(time.Minute))
		require.Equal(t, http.StatusOK, serve(h, post("/", "1")).Code)
		require.Greater(t, time.Since(began), 50*time.Second)
	})
}

type away struct{ driver.Driver }

func (away) Acquire(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, errors.New("connection refused to 10.0.0.1")
}

func TestStoreUnavailable(t *testing.T) {
	l, err := locker.New(away{memory.NewStore().Driver()})
	require.NoError(t, err)
	defer l.Close()
	handled := 0
	h := func(http.ResponseWriter, *http.Request) { handled++ }

	w := serve(guard(t, l, h), post("/", "1"))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "5", w.Header().Get("Retry-After"))
	require.NotContains(t, w.Body.String(), "10.0.0.1")
	require.Zero(t, handled)

	pass := guard(t, l, h, once.PassWhenUnavailable())
	require.Equal(t, http.StatusOK, serve(pass, post("/", "1")).Code)
	require.Equal(t, 1, handled)
	require.NoError(t, l.Close())
	require.Equal(t, http.StatusServiceUnavailable, serve(pass, post("/", "1")).Code, "a closed Locker is no outage")
}

// A header that comes in several lines is the same as in one.
func TestHeaderInSeveralLines(t *testing.T) {
	for name, c := range map[string]struct {
		first, second []string
		again         int
	}{
		"the same lines":       {[]string{"a", "b"}, []string{"a", "b"}, http.StatusConflict},
		"in one line":          {[]string{"a", "b"}, []string{"a, b"}, http.StatusConflict},
		"another second line":  {[]string{"a", "b"}, []string{"a", "c"}, http.StatusOK},
		"the first is empty":   {[]string{"", "b"}, []string{"", "b"}, http.StatusConflict},
		"one that is not ours": {[]string{"a"}, []string{"a", "b"}, http.StatusOK},
	} {
		h := guard(t, newLocker(t, memory.NewStore()), func(http.ResponseWriter, *http.Request) {})
		for i, lines := range [][]string{c.first, c.second} {
			r := post("/", "")
			r.Header[once.HeaderKey] = lines
			require.Equal(t, []int{http.StatusOK, c.again}[i], serve(h, r).Code, name)
		}
	}
}

// That a client leaves while its key is asked for is no outage: the request is not handled without its lock.
func TestClientThatLeavesBeforeTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults conformance.Injector
		require.NoError(t, faults.Slow(time.Second))
		l, err := locker.New(faults.Wrap(memory.NewStore().Driver()))
		require.NoError(t, err)
		defer l.Close()
		h := guard(t, l, func(http.ResponseWriter, *http.Request) { t.Error("it is handled") }, once.PassWhenUnavailable())
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		require.Equal(t, http.StatusServiceUnavailable, serve(h, post("/", "1").WithContext(ctx)).Code)
		time.Sleep(time.Minute) // on the bubble's clock: the clean-up of the attempt
	})
}

func TestKeysAndRefusals(t *testing.T) {
	store := memory.NewStore()
	h := guard(t, newLocker(t, store), func(http.ResponseWriter, *http.Request) {},
		once.WithKey(func(r *http.Request) string { return r.FormValue("order") }),
		once.WithPrefix("shop:"),
		once.WithRefusal(func(w http.ResponseWriter, _ *http.Request, status int, err error) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			if errors.Is(err, locker.ErrNotAcquired) {
				w.Write([]byte(`{"title":"twice"}`))
			}
		}))
	require.Equal(t, http.StatusOK, serve(h, post("/?order=7", "")).Code)
	require.Equal(t, []string{"shop:7"}, store.Keys())
	w := serve(h, post("/?order=7", ""))
	require.Equal(t, http.StatusConflict, w.Code)
	require.JSONEq(t, `{"title":"twice"}`, w.Body.String())
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusBadRequest, serve(h, post("/?order=%ff", "")).Code)
	require.Equal(t, http.StatusOK, serve(h, post("/", "")).Code)
}

// A handler can flush its answer, and so on, by http.ResponseController.
func TestResponseController(t *testing.T) {
	h := guard(t, newLocker(t, memory.NewStore()), func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("a"))
		require.NoError(t, http.NewResponseController(w).Flush())
	})
	w := serve(h, post("/", "1"))
	require.True(t, w.Flushed)
}

func TestMisuse(t *testing.T) {
	l := newLocker(t, memory.NewStore())
	for name, opt := range map[string]once.Option{
		"nil": nil, "key": once.WithKey(nil), "kept": once.WithKept(nil), "refusal": once.WithRefusal(nil),
		"TTL": once.WithTTL(0), "prefix": once.WithPrefix("locker:"), "bytes": once.WithPrefix("\xff"),
	} {
		_, err := once.New(l, opt)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err := once.New(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)

	wrap, err := once.New(l)
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, serve(wrap(nil), post("/", "1")).Code)
}
