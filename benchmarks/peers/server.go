package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// stage is the testing.TB that redistest and faultproxy start their servers for.
type stage struct {
	testing.TB // nil: they need no more than is here
	cleanups   []func()
}

func (s *stage) Helper()                           {}
func (s *stage) Context() context.Context          { return context.Background() }
func (s *stage) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *stage) Errorf(format string, args ...any) { s.Fatalf(format, args...) }
func (s *stage) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *stage) end() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// A server is a redis-server of this program.
type server struct {
	addr  string
	admin *redis.Client
}

func startServer(s *stage) *server {
	r := redistest.Start(s, redistest.WithConfig("--tcp-backlog", "1024", "--maxclients", "15000"))
	return &server{r.Addr(), r.Client(s)}
}

func startHole(s *stage, addr string) *faultproxy.Proxy {
	p := faultproxy.Start(s, addr)
	p.Record(false)
	return p
}

// A load is what a server has done and keeps, or the difference of two such.
type load struct {
	cpu     time.Duration // of the main thread
	clients float64
	memory  float64 // bytes, without the clients'
	total   float64 // bytes
}

func (s *server) load(ctx context.Context) (l load, err error) {
	info, err := s.admin.InfoMap(ctx, "cpu", "clients", "memory").Result()
	if err != nil {
		return l, err
	}
	get := func(section, name string) float64 {
		f, e := strconv.ParseFloat(info[section][name], 64)
		if e != nil && err == nil {
			err = fmt.Errorf("INFO: %s: %w", name, e)
		}
		return f
	}
	cpu := get("CPU", "used_cpu_sys_main_thread") + get("CPU", "used_cpu_user_main_thread")
	l.cpu = time.Duration(cpu * float64(time.Second))
	l.clients = get("Clients", "connected_clients")
	l.total = get("Memory", "used_memory")
	l.memory = l.total - get("Memory", "mem_clients_normal")
	return l, err
}

func (s *server) version(ctx context.Context) string {
	return s.admin.InfoMap(ctx, "server").Item("Server", "redis_version")
}

func (l load) minus(o load) load {
	return load{l.cpu - o.cpu, l.clients - o.clients, l.memory - o.memory, l.total - o.total}
}
