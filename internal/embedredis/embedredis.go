// Package embedredis gives programs a Redis to talk to on a machine that has
// none: miniredis, listening on a port of 127.0.0.1. It is for demonstrations;
// tests of the strategies run against a real redis-server.
package embedredis

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// tick is the resolution of a server's clock.
const tick = time.Millisecond

// Server is a running server.
type Server struct {
	m       *miniredis.Miniredis
	setting sync.Mutex // a clock that two goroutines set does not go back
	stop    chan struct{}
	stopped chan struct{}
}

// Start starts an empty server in this process.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	m.SetTime(time.Now())
	m.ClockTTL(true) // without it a TTL stands still
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("starting an embedded Redis: %w", err)
	}
	s := &Server{m: m, stop: make(chan struct{}), stopped: make(chan struct{})}
	// A tick can be late on a busy machine. A script that counted a TTL from the tick before it would
	// set one that ends too early, so each script begins at the present time. No script calls another.
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" || cmd == "EVAL" {
			s.setClock()
		}
		return false
	})
	go s.runClock()
	return s, nil
}

// setClock sets the server's clock. SetTime waits for the server's mutex, which a script holds
// until its end: as in Redis, no key ends in the middle of a script. With miniredis's own clock a
// key could end there, between a script's PTTL and its GET.
func (s *Server) setClock() {
	s.setting.Lock()
	defer s.setting.Unlock()
	s.m.SetTime(time.Now())
}

// runClock sets the clock at each tick.
func (s *Server) runClock() {
	defer close(s.stopped)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.setClock()
		case <-s.stop:
			return
		}
	}
}

// URL returns a URL for [github.com/redis/go-redis/v9.ParseURL].
func (s *Server) URL() string { return "redis://" + s.m.Addr() + "/0" }

// Close stops the server and forgets what it held.
func (s *Server) Close() {
	close(s.stop)
	<-s.stopped
	s.m.Close()
}

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
