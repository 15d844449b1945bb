package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/fencetest"
	"github.com/distlock/locker/fence/httpfence"
	"github.com/distlock/locker/strategy/memory"
)

// remote is the Guard behind a service.
type remote struct{ url string }

func (g remote) Admit(ctx context.Context, key string, token int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, strings.NewReader(url.Values{"key": {key}}.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set(httpfence.Header, strconv.FormatInt(token, 10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	switch {
	case httpfence.Refused(resp) != nil:
		return httpfence.Refused(resp)
	case resp.StatusCode == http.StatusBadRequest:
		return errors.Join(fence.ErrInvalid, errors.New(string(body)))
	case resp.StatusCode != http.StatusNoContent:
		return errors.New(resp.Status)
	}
	return nil
}

var done = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	return server.URL
}

func TestHandler(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(tb testing.TB) fence.Guard {
		key := func(r *http.Request) string { return r.FormValue("key") }
		return remote{serve(tb, httpfence.Handler(fence.NewMemory(), key, done))}
	})
}

type broken struct{}

func (broken) Admit(context.Context, string, int64) error { return errors.New("secret of the store") }

func TestAnswers(t *testing.T) {
	t.Parallel()
	guard := fence.NewMemory()
	require.NoError(t, guard.Admit(t.Context(), "/lamp", 9))
	fenced := httpfence.Handler(guard, httpfence.Path, done)
	for _, c := range []struct {
		name    string
		handler http.Handler
		tokens  []string
		status  int
		seen    string
	}{
		{"equal", fenced, []string{"9"}, http.StatusNoContent, ""},
		{"stale", fenced, []string{"8"}, http.StatusPreconditionFailed, "9"},
		{"none", fenced, nil, http.StatusPreconditionRequired, ""},
		{"empty", fenced, []string{""}, http.StatusBadRequest, ""},
		{"zero", fenced, []string{"0"}, http.StatusBadRequest, ""},
		{"negative", fenced, []string{"-9"}, http.StatusBadRequest, ""},
		{"plus", fenced, []string{"+10"}, http.StatusBadRequest, ""},
		{"zeros before it", fenced, []string{"010"}, http.StatusBadRequest, ""},
		{"hexadecimal", fenced, []string{"0x10"}, http.StatusBadRequest, ""},
		{"too great", fenced, []string{"9223372036854775808"}, http.StatusBadRequest, ""},
		{"two", fenced, []string{"10", "11"}, http.StatusBadRequest, ""},
		{"a list", fenced, []string{"10, 11"}, http.StatusBadRequest, ""},
		{"the guard fails", httpfence.Handler(broken{}, httpfence.Path, done), []string{"10"}, http.StatusServiceUnavailable, ""},
		{"no guard", httpfence.Handler(nil, httpfence.Path, done), []string{"10"}, http.StatusInternalServerError, ""},
		{"no key function", httpfence.Handler(guard, nil, done), []string{"10"}, http.StatusInternalServerError, ""},
		{"no handler", httpfence.Handler(guard, httpfence.Path, nil), []string{"10"}, http.StatusInternalServerError, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/lamp", nil)
		r.Header[http.CanonicalHeaderKey(httpfence.Header)] = c.tokens
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, c.name)
		require.Equal(t, c.seen, w.Header().Get(httpfence.Header), c.name)
		require.NotContains(t, w.Body.String(), "secret", c.name)
		require.Equal(t, c.name == "stale", errors.Is(httpfence.Refused(w.Result()), fence.ErrStale), c.name)
	}
	require.ErrorIs(t, guard.Admit(t.Context(), "/lamp", 8), fence.ErrStale, "nothing of this was admitted")
	require.NoError(t, guard.Admit(t.Context(), "/lamp", 9), "nothing of this was admitted")
}

// A 412 that another precondition has caused is no refusal of a token.
func TestRefusedIsAboutTokens(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusPreconditionFailed)
	require.NoError(t, httpfence.Refused(w.Result()))
}

// A guard in SQL does not know which token was admitted.
func TestRefusedByAnUnknownToken(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httpfence.Error(w, &fence.StaleError{Key: "/lamp", Token: 8})
	err := httpfence.Refused(w.Result())
	require.ErrorIs(t, err, fence.ErrStale)
	require.ErrorContains(t, err, "has admitted a greater one")
}

// sent is a RoundTripper that keeps the header of the last request.
type sent struct {
	header http.Header
	n      int
}

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.header, s.n = r.Header, s.n+1
	return httptest.NewRecorder().Result(), nil
}

func send(transport *httpfence.Transport, r *http.Request) error {
	resp, err := transport.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// body knows whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func newRequest(t *testing.T, ctx context.Context) (*http.Request, *body) {
	t.Helper()
	b := &body{Reader: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://stock.example/lamp", b)
	require.NoError(t, err)
	return r, b
}

func lock(t *testing.T, key string, opts ...locker.Option) *locker.Lease {
	t.Helper()
	l, err := memory.New(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	lease, err := l.Lock(t.Context(), key)
	require.NoError(t, err)
	return lease
}

func TestTransport(t *testing.T) {
	t.Parallel()
	lease, base := lock(t, "/lamp"), new(sent)
	transport := &httpfence.Transport{Base: base, Key: httpfence.Path}

	r, _ := newRequest(t, lease.Context(t.Context()))
	require.NoError(t, send(transport, r))
	require.Equal(t, strconv.FormatInt(lease.Token(), 10), base.header.Get(httpfence.Header))
	require.Empty(t, r.Header, "a RoundTripper does not change the request")

	r, _ = newRequest(t, t.Context())
	require.NoError(t, send(transport, r))
	require.Empty(t, base.header, "without a lease there is no token")

	r, _ = newRequest(t, lease.Context(t.Context()))
	r.Header.Set(httpfence.Header, "17")
	require.NoError(t, send(transport, r))
	require.Equal(t, "17", base.header.Get(httpfence.Header), "the caller's own stays")
}

func TestTransportDoesNotSend(t *testing.T) {
	t.Parallel()
	ended := lock(t, "/lamp")
	ctx := ended.Context(t.Context())
	require.NoError(t, ended.Unlock(t.Context()))
	short := lock(t, "/lamp", locker.WithTTL(100*time.Millisecond), locker.WithoutRenewal())
	<-short.Lost()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"the lease has ended":  {ctx, locker.ErrNotHeld},
		"the lease was lost":   {context.WithoutCancel(short.Context(t.Context())), locker.ErrLost},
		"another lock's lease": {lock(t, "/chair").Context(t.Context()), fence.ErrInvalid},
		"a lease has no token": {lock(t, "/lamp", locker.WithoutFencing()).Context(t.Context()), fence.ErrInvalid},
	} {
		base := new(sent)
		r, b := newRequest(t, c.ctx)
		require.ErrorIs(t, send(&httpfence.Transport{Base: base, Key: httpfence.Path}, r), c.want, name)
		require.Zero(t, base.n, name)
		require.True(t, b.closed, name)
	}
}

// Both ends: a late request is refused by its token, whatever the client believes.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	address := serve(t, httpfence.Handler(fence.NewMemory(), httpfence.Path, done)) + "/lamp"
	client := &http.Client{Transport: &httpfence.Transport{}}
	put := func(ctx context.Context, token int64) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, strings.NewReader("{}"))
		require.NoError(t, err)
		if token != 0 {
			req.Header.Set(httpfence.Header, strconv.FormatInt(token, 10))
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return httpfence.Refused(resp)
	}
	lease := lock(t, "/lamp")
	require.NoError(t, put(lease.Context(t.Context()), 0))
	err := put(t.Context(), lease.Token()-1)
	require.ErrorIs(t, err, fence.ErrStale)
	require.ErrorContains(t, err, strconv.FormatInt(lease.Token(), 10))
}
