// Package once is HTTP middleware that refuses what a client submits twice: the order
// that was placed by a double click, or sent again because the first answer got lost.
//
//	guard, err := once.New(l)
//	...
//	http.Handle("POST /orders", guard(placeOrder))
//
// The first request with a key is handled. While it runs, and for a fixed time from its
// arrival ([WithTTL]), others with the same key are refused with 409 Conflict, in every
// process that shares the store. A request that fails, by an answer of 400 or above
// ([WithKept] sets another rule) or by a panic, gives its key back, so that the client may
// correct it or try again. A handler that returns without an answer has succeeded, as
// net/http answers 200 for it, also when its client has left. So a handler that gives up because
// its request's context has ended has to answer with an error, such as 503, or to panic with
// [http.ErrAbortHandler]. The key is the header Idempotency-Key together with the method
// and the path, see [WithKey]; a request without one is handled as if there was no
// middleware.
//
// While the lock of a key is held, no second request with the key runs. The lock is held while the
// handler runs, and after a success until the TTL ends, which counts from the arrival of the request.
// Where the handler runs for longer than the TTL, its request's context ends before the key is free,
// with a cause that matches [locker.ErrLost]. After a loss of the lock, two may run: see Limits.
//
// Limits:
//
//   - The second request is given the answer of the first only under [WithReplay], and while
//     the first one runs only under [WithWait].
//   - A key is forgotten after its TTL, and earlier if the store loses its data. Where a
//     thing must never happen twice, keep the key with the data, under a unique index.
//   - A handler that does not heed its context may run beside the next one. The tokens
//     of their leases ([locker.LeaseFromContext]) differ.
//   - A process that dies leaves the key taken until its TTL ends, whether or not the
//     request was handled. If it had stored its answer ([WithReplay], with a [Store] that processes share, such as
//     [Redis]), a repetition gets that answer from any other process. If it had not, a repetition is refused with 409
//     until the TTL ends, or waits for that ([WithWait]), and is handled then: a handler whose effect may have
//     taken place needs a unique index, too.
//   - A request that was not handled may leave its key taken, too: for a moment if its client has left while the lock was
//     taken, and until the TTL ends if the store's answer got lost and the process has not been able to reach the store
//     since. A repetition is refused with 409 meanwhile. [WithWait] bridges the moment.
//
// A key that is kept takes none of the Locker's memory ([locker.Lease.LetExpire]). The end of
// its TTL is no loss; a handler that runs for longer than the TTL loses its lock. A request costs one command to the
// store of locks, and one more if its key is given back. A repetition that waits ([WithWait]) tries again about every 50 ms.
package once

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
)

// HeaderKey is where a key is looked for by default.
const HeaderKey = "Idempotency-Key"

// retryAfter is the Retry-After of a 503: the store does not answer.
const retryAfter = 5 * time.Second

// look is the time between two looks of a repetition that waits.
const look = 50 * time.Millisecond

// New makes the middleware. A wrong argument is an error that matches
// [locker.ErrInvalid].
func New(l locker.Locker, opts ...Option) (func(http.Handler) http.Handler, error) {
	s, err := newSettings(opts)
	if err == nil {
		err = locker.Validate(l, s.prefix+"x", s.lock()...)
	}
	if err != nil {
		return nil, fmt.Errorf("once: %w", err)
	}
	return func(next http.Handler) http.Handler {
		if next == nil { // a handler cannot return an error
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "There is no handler for this request.", http.StatusInternalServerError)
			})
		}
		return &guard{settings: s, l: l, next: next}
	}, nil
}

type guard struct {
	settings
	l    locker.Locker
	next http.Handler
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := g.key(r)
	if key == "" {
		g.next.ServeHTTP(w, r)
		return
	}
	// The owner is new, so that the request does not re-enter the lock of another one
	// whose context names the same user.
	ctx := locker.ContextWithOwner(r.Context(), rand.Text())
	lease, err := g.l.TryLock(ctx, g.prefix+key, g.lock()...)
	for end := time.Now().Add(g.wait); errors.Is(err, locker.ErrNotAcquired); {
		if g.replayed(w, r, g.prefix+key, err) {
			return
		}
		if left := time.Until(end); left <= 0 || !bound.Sleep(ctx, nil, min(left, look)) {
			break
		}
		// Where the store does not answer now, the key is taken as far as is known: the request does not pass.
		if again, failed := g.l.TryLock(ctx, g.prefix+key, g.lock()...); !errors.Is(failed, locker.ErrUnavailable) {
			lease, err = again, failed
		}
	}
	switch {
	case err == nil:
		g.handle(w, r, lease)
	case errors.Is(err, locker.ErrNotAcquired):
		// No Retry-After: by then the key might be free, and the request be handled twice.
		g.answer(w, r, http.StatusConflict, 0, err)
	case errors.Is(err, locker.ErrInvalid):
		g.answer(w, r, http.StatusBadRequest, 0, err)
	case g.pass && errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil: // else the client has left: the store may be well
		g.next.ServeHTTP(w, r)
	default:
		g.answer(w, r, http.StatusServiceUnavailable, retryAfter, err)
	}
}

func (g *guard) handle(w http.ResponseWriter, r *http.Request, lease *locker.Lease) {
	answer := &recorder{ResponseWriter: w}
	kept := false
	defer func() { // after a panic, too
		if kept {
			_ = lease.LetExpire() // fails only if the lease was lost, which the Locker reports
		} else {
			// The Locker's log shows if this fails; then the TTL frees the key.
			_ = lease.Unlock(r.Context())
		}
	}()
	if g.replay != nil {
		answer.copy = &copied{sum: g.replay.sum(r), before: w.Header().Clone(), most: g.replay.most}
	}
	g.next.ServeHTTP(answer, r.WithContext(lease.Context(r.Context())))
	status := answer.final()
	if kept = g.kept(status); kept && answer.copy != nil {
		g.keep(r, lease.Key(), answer.copy, status, lease) // before the lease is given up: its Deadline counts
	}
}

func (g *guard) answer(w http.ResponseWriter, r *http.Request, status int, retry time.Duration, err error) {
	if retry > 0 {
		seconds := int64((retry + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	g.refusal(w, r, status, err)
}

func refuse(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	text := "This request cannot be checked for a repetition now. Try again later."
	switch status {
	case http.StatusConflict:
		text = "This request was submitted before: it may have been handled, or is being handled."
	case http.StatusUnprocessableEntity:
		text = "The idempotency key was used for another request."
	case http.StatusBadRequest:
		text = "The idempotency key is too long or not UTF-8."
	}
	http.Error(w, text, status)
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int     // 0: none yet
	copy   *copied // nil: not wanted
}

// begin notes the status that counts.
func (r *recorder) begin(status int) {
	if r.status == 0 {
		r.status = status
		r.copy.begin(r.Header())
	}
}

func (r *recorder) WriteHeader(status int) {
	// A status below 200, except 101, comes before the one that counts.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.begin(http.StatusOK)
	n, err := r.ResponseWriter.Write(b)
	if !errors.Is(err, http.ErrContentLength) { // such a body is refused in a replay, too
		r.copy.write(b)
	}
	return n, err
}

// Flush implements [http.Flusher]: an answer that is flushed has a status.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is for [http.ResponseController].
func (r *recorder) FlushError() error {
	had := r.status
	r.begin(http.StatusOK)
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if had == 0 && errors.Is(err, http.ErrNotSupported) { // nothing was sent
		r.status = 0
		r.copy.undo()
	}
	return err
}

// Hijack implements [http.Hijacker]: the connection counts as answered by 101.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.begin(http.StatusSwitchingProtocols)
		r.copy.spoil()
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// final returns the status that the client gets, once the handler has returned.
func (r *recorder) final() int {
	r.begin(http.StatusOK)
	return r.status
}
