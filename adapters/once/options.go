package once

import (
	"net/http"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// Option configures the middleware.
type Option interface {
	apply(*settings) error
}

type option func(*settings) error

func (o option) apply(to *settings) error { return o(to) }

type settings struct {
	key     func(*http.Request) string
	prefix  string
	ttl     time.Duration
	kept    func(status int) bool
	pass    bool
	replay  *replay       // nil: none
	wait    time.Duration // of a repetition, for the answer
	refusal func(http.ResponseWriter, *http.Request, int, error)
}

func newSettings(opts []Option) (settings, error) {
	s := settings{
		key:     headerKey,
		prefix:  "once:",
		ttl:     10 * time.Minute,
		kept:    func(status int) bool { return status < 400 },
		refusal: refuse,
	}
	err := check.Options(opts, func(o Option) error { return o.apply(&s) })
	if err == nil && s.wait > 0 && s.replay == nil {
		err = check.Invalid("WithWait(%v): without WithReplay there is no answer to wait for", s.wait)
	}
	return s, err
}

// lock says how the key is locked: until its TTL ends, whatever the Locker's
// defaults are.
func (s *settings) lock() []locker.LockOption {
	return []locker.LockOption{locker.WithTTL(s.ttl), locker.WithoutRenewal(), locker.WithUnlimitedHold()}
}

func headerKey(r *http.Request) string {
	key := strings.Join(r.Header.Values(HeaderKey), ", ") // one line, as a proxy may make of several
	if key == "" {
		return ""
	}
	return r.Method + " " + r.URL.EscapedPath() + " " + key
}

// WithKey takes the key of a request from f; a request for which f returns "" is
// handled without a lock. The default is the header Idempotency-Key together with the
// method and the path. It does not know who the client is: where clients must not get
// in each other's way, by chance or on purpose, let f put the user into the key.
func WithKey(f func(*http.Request) string) Option {
	return option(func(s *settings) error {
		if f == nil {
			return check.Invalid("WithKey(nil): leave it out to use the header %s", HeaderKey)
		}
		s.key = f
		return nil
	})
}

// WithPrefix puts prefix before each key, in place of "once:".
func WithPrefix(prefix string) Option {
	return option(func(s *settings) error {
		s.prefix = prefix
		return nil
	})
}

// WithTTL sets for how long a key is taken, from when the request arrived: 100 ms to 24 h. Choose more than the longest run
// of the handler, and more than the time for which clients try again. Default 10 min.
func WithTTL(d time.Duration) Option {
	return option(func(s *settings) error {
		s.ttl = d
		return nil
	})
}

// WithKept sets the function that decides by the status of an answer whether the key stays
// taken. By default it does below 400: a request that was refused has done nothing, as a
// rule. Return true for 5xx as well if a request that failed may have taken effect.
func WithKept(f func(status int) bool) Option {
	return option(func(s *settings) error {
		if f == nil {
			return check.Invalid("WithKept(nil): leave it out to keep what was answered below 400")
		}
		s.kept = f
		return nil
	})
}

// WithWait lets a repetition that arrives while the first request runs wait for its answer, for at most d, before it is
// refused with 409: who clicks twice sees the answer and no error. If the first request fails meanwhile, the repetition
// is handled. It needs [WithReplay]. A request that waits looks 20 times per second, with a command to the store of
// locks unless this process has the first request, and one to the [Store]. A repetition that reaches another process
// waits in vain if the Store is of one process, as [Memory] is, and gets its answer from [Redis]. Default 0, at most
// 1 h.
func WithWait(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < 0 || d > time.Hour {
			return check.Invalid("WithWait(%v): want 0s to %v", d, time.Hour)
		}
		s.wait = d
		return nil
	})
}

// PassWhenUnavailable lets requests be handled, without a lock, while the store cannot be
// used. By default they are refused with 503 Service Unavailable, as is a request whose client
// leaves before the store has answered.
func PassWhenUnavailable() Option {
	return option(func(s *settings) error {
		s.pass = true
		return nil
	})
}

// WithRefusal lets f write the answer of a refused request, in place of a line of plain
// text. status is the one to answer with: 409 for a repetition, 503 for a store that cannot be
// used, 400 for a key that is too long or not UTF-8, 422 for a key that was used for another
// request ([WithReplay]); err is the Locker's error, which is
// not for the client's eyes. Retry-After is set for a 503; f may change it.
func WithRefusal(f func(w http.ResponseWriter, r *http.Request, status int, err error)) Option {
	return option(func(s *settings) error {
		if f == nil {
			return check.Invalid("WithRefusal(nil): leave it out to answer in plain text")
		}
		s.refusal = f
		return nil
	})
}
