// Package httpfence carries fencing tokens over HTTP: a service answers 412 to a request whose
// token is stale, and a client sends the token of the lease that its request's context carries.
//
// In the service:
//
//	mux.Handle("PUT /stock/{id}", httpfence.Handler(guard, httpfence.Path, http.HandlerFunc(put)))
//
// In the client:
//
//	client := &http.Client{Transport: &httpfence.Transport{}}
//	err := locker.Do(ctx, l, "/stock/lamp", func(ctx context.Context) error {
//		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
//		...
//		resp, err := client.Do(req)
//		...
//		defer resp.Body.Close()
//		return httpfence.Refused(resp) // errors.Is(err, fence.ErrStale): a later owner was here
//	})
//
// # Check and write
//
// [Handler] admits the token before the handler behind it writes. Between the two a later owner's
// request may come: use Handler in services that cannot compare in the step that writes. A service with
// a SQL database or Redis asks [Token] for the request's token instead, admits it in the
// transaction (package sqlfence) or script (package redisfence) of the write, and answers by
// [Error].
//
// A token is no credential: anybody can send a great one, and shut out all others. Authenticate first.
package httpfence

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
)

// Header carries a token, as a decimal number. In a request it is the request's own token. In an
// answer of 412 it is the greater token that was admitted, or 0 if that is not known.
const Header = "Fencing-Token"

// errMissing is a request without a token, which gets 428.
var errMissing = fmt.Errorf("httpfence: %w: want a header %s", fence.ErrInvalid, Header)

// Token returns the token that r carries; an error that matches [fence.ErrInvalid] if there is
// none, or not just one decimal number from 1 to 2^63-1.
func Token(r *http.Request) (int64, error) {
	values := r.Header.Values(Header)
	if len(values) == 0 {
		return 0, errMissing
	}
	token, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 || token < 1 || strconv.FormatInt(token, 10) != values[0] {
		return 0, fmt.Errorf("httpfence: %w: want one header %s with a decimal number of 1 or more, got %.100q", fence.ErrInvalid, Header, values)
	}
	return token, nil
}

// Path returns the path of r's URL. It is a key function for services with a lock for each path.
func Path(r *http.Request) string { return r.URL.Path }

// Handler passes a request to next if guard admits its token for the key that key returns, and
// answers by [Error] otherwise. See [Check and write] above. Without one of the three it answers
// 500, and passes nothing.
//
// [Check and write]: https://pkg.go.dev/github.com/distlock/locker/fence/httpfence#hdr-Check_and_write
func Handler(guard fence.Guard, key func(*http.Request) string, next http.Handler) http.Handler {
	if guard == nil || key == nil || next == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "httpfence: Handler wants a Guard, a key function and a handler, got nil", http.StatusInternalServerError)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := Token(r)
		if err == nil {
			err = guard.Admit(r.Context(), key(r), token)
		}
		if err != nil {
			Error(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Error answers for an error of [Token] or of a Guard: 412 Precondition Failed for
// [fence.ErrStale], 428 Precondition Required for a request without a token, 400 for another
// [fence.ErrInvalid], and 503 otherwise, without the error's text: nothing is known of the token.
func Error(w http.ResponseWriter, err error) {
	status, text := http.StatusServiceUnavailable, "the fencing token could not be checked"
	switch {
	case errors.Is(err, fence.ErrStale):
		var stale *fence.StaleError
		seen := int64(0)
		if errors.As(err, &stale) {
			seen = stale.Seen
		}
		w.Header().Set(Header, strconv.FormatInt(seen, 10))
		status, text = http.StatusPreconditionFailed, err.Error()
	case errors.Is(err, errMissing):
		status, text = http.StatusPreconditionRequired, err.Error()
	case errors.Is(err, fence.ErrInvalid):
		status, text = http.StatusBadRequest, err.Error()
	}
	http.Error(w, text, status)
}

// Refused returns an error that matches [fence.ErrStale] if resp is the refusal of a stale token:
// status 412 and a [Header]. It leaves the body alone.
func Refused(resp *http.Response) error {
	seen := resp.Header.Get(Header)
	if resp.StatusCode != http.StatusPreconditionFailed || seen == "" {
		return nil
	}
	if seen == "0" { // the service does not know it
		seen = "a greater one"
	}
	return fmt.Errorf("httpfence: %w: the service has admitted %s: a later owner was here", fence.ErrStale, seen)
}

// Transport is a RoundTripper that sends the token of the lease which the request's context
// carries ([locker.LeaseFromContext]: of several the innermost). A request without a lease goes out
// as it is, and so does one that has a [Header] already. A request whose lease has ended is not
// sent: the error is that of the lease. The zero Transport is ready.
//
// Do not rely on that last look: a request may be late all the same, and is refused by its token.
type Transport struct {
	Base http.RoundTripper // nil is http.DefaultTransport
	// Key, if it is not nil, returns the key of the lock that protects what r writes, as Handler's
	// does in the service. A lease of another key fails the request with fence.ErrInvalid: tokens of
	// two locks cannot be compared.
	Key func(r *http.Request) string
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	lease, ok := locker.LeaseFromContext(r.Context())
	if !ok || len(r.Header.Values(Header)) > 0 {
		return base.RoundTrip(r)
	}
	if err := t.usable(r, lease); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to
		}
		return nil, err
	}
	r = r.Clone(r.Context()) // a RoundTripper may not change r
	r.Header.Set(Header, strconv.FormatInt(lease.Token(), 10))
	return base.RoundTrip(r)
}

func (t *Transport) usable(r *http.Request, lease *locker.Lease) error {
	if err := lease.Err(); err != nil {
		return err
	}
	if t.Key != nil {
		if key := t.Key(r); key != lease.Key() {
			return fmt.Errorf("httpfence: %w: want a lease of %s, got one of %s", fence.ErrInvalid, fence.Quote(key), fence.Quote(lease.Key()))
		}
	}
	return fence.Validate(lease.Key(), lease.Token())
}
