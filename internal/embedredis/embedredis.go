// Package embedredis gives programs a Redis to talk to on a machine that has
// none: miniredis, listening on a port of 127.0.0.1. It is for demonstrations;
// tests of the strategies run against a real redis-server.
package embedredis

import (
	"fmt"

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
