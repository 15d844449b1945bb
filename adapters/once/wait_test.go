package once_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/strategy/memory"
)

// Under WithWait a repetition waits for the answer of the first request; for the time given, and no longer.
func TestRepetitionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, answers, handled := memory.NewStore(), newMemory(t, 1<<20), 0
		process := func() http.Handler {
			return guard(t, newLocker(t, store), func(w http.ResponseWriter, r *http.Request) {
				handled++
				time.Sleep(10 * time.Second) // on the bubble's clock
				created(w, r)
			}, once.WithReplay(answers, 1<<10, user), once.WithWait(time.Minute))
		}
		a, b := process(), process()
		all := make(chan *httptest.ResponseRecorder)
		began := time.Now()
		for _, h := range []http.Handler{a, a, b} {
			go func() { all <- serve(h, post("/orders", "1")) }()
		}
		replayed := 0
		for range 3 {
			w := <-all
			require.Equal(t, http.StatusCreated, w.Code)
			require.Equal(t, `{"id":7}`, w.Body.String())
			replayed += len(w.Header()[once.HeaderReplayed])
		}
		require.Equal(t, []int{1, 2}, []int{handled, replayed})
		require.Less(t, time.Since(began), 11*time.Second)

		stuck := make(chan struct{})
		slow := guard(t, newLocker(t, store), func(http.ResponseWriter, *http.Request) { <-stuck },
			once.WithReplay(answers, 1<<10, user), once.WithWait(time.Minute))
		go func() { all <- serve(slow, post("/slow", "1")) }()
		synctest.Wait()
		began = time.Now()
		require.Equal(t, http.StatusConflict, serve(slow, post("/slow", "1")).Code)
		require.Equal(t, time.Minute, time.Since(began))
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		serve(slow, post("/slow", "1").WithContext(ctx))
		require.Equal(t, time.Minute+time.Second, time.Since(began), "its client has left")
		close(stuck)
		<-all
	})
}

// If the first request fails while a repetition waits, the repetition is handled.
func TestRepetitionWaitsForAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		h := guard(t, newLocker(t, memory.NewStore()), func(w http.ResponseWriter, r *http.Request) {
			if handled++; handled == 1 {
				time.Sleep(time.Second) // on the bubble's clock
				http.Error(w, "no", http.StatusBadGateway)
				return
			}
			created(w, r)
		}, once.WithReplay(newMemory(t, 1<<20), 1<<10, user), once.WithWait(time.Minute))
		first := make(chan int)
		go func() { first <- serve(h, post("/orders", "1")).Code }()
		synctest.Wait()
		require.Equal(t, http.StatusCreated, serve(h, post("/orders", "1")).Code)
		require.Equal(t, http.StatusBadGateway, <-first)
		require.Equal(t, 2, handled)
	})
}

// An outage of the store while a repetition waits does not let it pass: the key is known to be taken.
func TestRepetitionWaitsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, answers, handled := memory.NewStore(), newMemory(t, 1<<20), 0
		var faults conformance.Injector
		faulty, err := locker.New(faults.Wrap(store.Driver()))
		require.NoError(t, err)
		defer faulty.Close()
		process := func(l locker.Locker) http.Handler {
			return guard(t, l, func(w http.ResponseWriter, r *http.Request) {
				handled++
				time.Sleep(10 * time.Second) // on the bubble's clock
				created(w, r)
			}, once.WithReplay(answers, 1<<10, user), once.WithWait(time.Minute), once.PassWhenUnavailable())
		}
		a, b := process(newLocker(t, store)), process(faulty)
		both := make(chan *httptest.ResponseRecorder)
		for _, h := range []http.Handler{a, b} {
			go func() { both <- serve(h, post("/orders", "1")) }()
			synctest.Wait()
		}
		time.Sleep(time.Second) // the repetition looks
		require.NoError(t, faults.Refuse())
		time.Sleep(time.Second) // the repetition looks
		require.NoError(t, faults.Heal())
		for range 2 {
			require.Equal(t, http.StatusCreated, (<-both).Code)
		}
		require.Equal(t, 1, handled)
	})
}

func TestWaitRefusesNonsense(t *testing.T) {
	replay := once.WithReplay(newMemory(t, 1), 1, user)
	for name, opts := range map[string][]once.Option{
		"nothing to wait for": {once.WithWait(time.Second)},
		"less than nothing":   {replay, once.WithWait(-1)},
		"for ever":            {replay, once.WithWait(2 * time.Hour)},
	} {
		_, err := once.New(newLocker(t, memory.NewStore()), opts...)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
}
