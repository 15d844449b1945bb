// Package embedredis gives programs a Redis to talk to on a machine that has
// none: miniredis, listening on a port of 127.0.0.1. It is for demonstrations;
// tests of the strategies run against a real redis-server.
package embedredis

import (
	"fmt"
	"io"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running server.
type Server struct {
	m *miniredis.Miniredis
}

// Start starts an empty server in this process.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // by itself a TTL does not tick there
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("starting an embedded Redis: %w", err)
	}
	return &Server{m}, nil
}

// URL is a URL for [github.com/redis/go-redis/v9.ParseURL].
func (s *Server) URL() string { return "redis://" + s.m.Addr() + "/0" }

// Close stops the server and forgets what it held.
func (s *Server) Close() { s.m.Close() }

// Instead starts n servers for a program that was not given its flag, and says so. stop stops
// them.
func Instead(stderr io.Writer, flag string, n int) (urls []string, stop func(), err error) {
	var servers []*Server
	stop = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	for range n {
		s, err := Start()
		if err != nil {
			stop()
			return nil, nil, err
		}
		servers, urls = append(servers, s), append(urls, s.URL())
	}
	what := "an embedded server (miniredis) at"
	if n > 1 {
		what = "embedded servers (miniredis), the first at"
	}
	fmt.Fprintf(stderr, "No %s given: using %s %s\n", flag, what, urls[0])
	return urls, stop, nil
}
