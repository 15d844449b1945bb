package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// open opens a shop.
func open(t *testing.T, url string, guarded bool) (*shop, *httptest.Server) {
	t.Helper()
	l, release, err := strategy.OpenURL(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(release)
	s := &shop{takes: 100 * time.Millisecond}
	routes, err := s.routes(l, guarded)
	require.NoError(t, err)
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s, server
}

var keyField = regexp.MustCompile(`name="key" value="(\w+)"`)

// form opens the form, and returns its fields.
func form(t *testing.T, server *httptest.Server) url.Values {
	t.Helper()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	key := keyField.FindSubmatch(body)
	require.NotNil(t, key, "%s", body)
	return url.Values{"key": {string(key[1])}, "lamps": {"2"}}
}

type answer struct {
	status int
	body   string
}

// clicks sends a form so many times at once.
func clicks(t *testing.T, server *httptest.Server, fields url.Values, times int) []answer {
	t.Helper()
	all, errs := make([]answer, times), make([]error, times)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() {
			resp, err := http.PostForm(server.URL+"/orders", fields)
			if errs[i] = err; err != nil {
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			all[i], errs[i] = answer{resp.StatusCode, string(body)}, err
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return all
}

func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.orders)
}

// A form that is sent several times at once, and once more, is one order, and has one answer.
func TestClickedTwice(t *testing.T) {
	redis := redistest.Shared(t).URL()
	for name, url := range map[string]string{
		"memory": "memory://" + t.Name(),
		"setnx":  "setnx+" + redis + "?prefix=setnx:", "hashreentrant": "hashreentrant+" + redis + "?prefix=hash:", "blpop": "blpop+" + redis + "?prefix=blpop:",
	} {
		t.Run(name, func(t *testing.T) {
			s, server := open(t, url, true)
			fields := form(t, server)
			all := append(clicks(t, server, fields, 5), clicks(t, server, fields, 1)...)
			for _, a := range all {
				require.Equal(t, http.StatusCreated, a.status)
				require.Equal(t, all[0].body, a.body)
			}
			require.Contains(t, all[0].body, "Order 1: 2 lamps")
			require.Equal(t, 1, s.count())

			require.Equal(t, http.StatusCreated, clicks(t, server, form(t, server), 1)[0].status)
			require.Equal(t, 2, s.count(), "a form that is opened again is another order")
			fields.Set("lamps", "3")
			require.Equal(t, http.StatusUnprocessableEntity, clicks(t, server, fields, 1)[0].status, "the key of another form")
			require.Equal(t, 2, s.count())
		})
	}
}

// Without the guard each click is an order: the test above can fail.
func TestClickedTwiceWithoutAGuard(t *testing.T) {
	s, server := open(t, "memory://"+t.Name(), false)
	all := clicks(t, server, form(t, server), 2)
	require.Equal(t, 2, s.count())
	require.NotEqual(t, all[0].body, all[1].body)
}

// Fields that are wrong place nothing, and the form may be sent again with right ones.
func TestWrongFields(t *testing.T) {
	s, server := open(t, "memory://"+t.Name(), true)
	fields := form(t, server)
	for _, lamps := range []string{"", "0", "101", "two"} {
		fields.Set("lamps", lamps)
		require.Equal(t, http.StatusBadRequest, clicks(t, server, fields, 1)[0].status, lamps)
	}
	require.Equal(t, http.StatusBadRequest, clicks(t, server, url.Values{"lamps": {"2"}}, 1)[0].status, "no key")
	require.Zero(t, s.count())
	fields.Set("lamps", "2")
	require.Equal(t, http.StatusCreated, clicks(t, server, fields, 1)[0].status)
	require.Equal(t, 1, s.count())
}

func TestProgram(t *testing.T) {
	free, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer free.Close()
	for want, args := range map[int][][]string{
		cli.OK:       {{"-help"}},
		cli.Failed:   {{"-url", "nosuch://x"}, {"-listen", free.Addr().String()}},
		cli.BadUsage: {{"-nosuch"}, {"more"}},
	} {
		for _, args := range args {
			var out, errs bytes.Buffer
			require.Equal(t, want, cli.Run(t.Context(), "once", run, args, &out, &errs), args)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &until{text: "open http://", stop: cancel}
	require.Equal(t, cli.Interrupted, cli.Run(ctx, "once", run, []string{"-listen", "localhost:0"}, out, io.Discard))
}

// until stops the program when it has printed a text.
type until struct {
	bytes.Buffer
	text string
	stop func()
}

func (u *until) Write(b []byte) (int, error) {
	defer func() {
		if strings.Contains(u.String(), u.text) {
			u.stop()
		}
	}()
	return u.Buffer.Write(b)
}
