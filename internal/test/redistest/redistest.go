package redistest

import (
	"errors"
	"sync"
	"testing"
)

// An Option changes how a server is started.
type Option func(*config)

type config struct {
	args     []string
	aof      bool
	dir      string
	tls      bool
	sentinel bool
	env      []string
	clock    bool
}

// WithConfig appends arguments to redis-server's command line, for example
// "--maxmemory", "2mb". They override the defaults of this package.
func WithConfig(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// WithAOF makes the server log every write and sync it before it replies, so
// that Restart keeps the data. Without it a restarted server is empty.
func WithAOF() Option {
	return func(c *config) { c.aof = true }
}

// WithDir keeps the data files in dir, which is left as it is afterwards.
func WithDir(dir string) Option {
	return func(c *config) { c.dir = dir }
}

// Start starts a server for this test and kills it when the test is over.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := launch(opts)
	if errors.Is(err, errors.ErrUnsupported) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.discard)
	return s
}

var shared = sync.OnceValues(func() (*Server, error) { return launch(nil) })

// Shared returns the one server of this test binary, which starts on first use
// and ends with the process. Tests that share it use keys of their own, and do
// not kill, pause or flush it.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return s
}

// Goroutines names the functions of this package that outlive a test, for
// goleak.IgnoreAnyFunction.
func Goroutines() []string {
	const internal = "github.com/distlock/locker/internal/"
	return []string{internal + "child.spawnLoop", internal + "test/redistest.(*process).reap"}
}

// Launch is [Start] for programs: the server runs until stop is called.
func Launch(opts ...Option) (s *Server, stop func(), err error) {
	s, err = launch(opts)
	if err != nil {
		return nil, nil, err
	}
	return s, s.discard, nil
}
