package main

import (
	"context"
	"strconv"

	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// A bench has the redis-servers, which stay the same for all measurements.
type bench struct {
	stage  rig.Stage
	addrs  []string
	pids   []int
	admins []*redis.Client
	count  int // of measurements
}

// start starts servers until there are n.
func (b *bench) start(n int) {
	for len(b.addrs) < n {
		s := redistest.Start(&b.stage, redistest.WithConfig("--tcp-backlog", "1024", "--maxclients", "15000"))
		b.addrs, b.pids, b.admins = append(b.addrs, s.Addr()), append(b.pids, s.PID()), append(b.admins, s.Client(&b.stage))
	}
}

// An info has the numbers of the first server's INFO.
type info map[string]float64

func (b *bench) info(ctx context.Context) (info, error) {
	sections, err := b.admins[0].InfoMap(ctx, "cpu", "clients", "memory").Result()
	out := info{}
	for _, fields := range sections {
		for name, value := range fields {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				out[name] = v
			}
		}
	}
	return out, err
}

// cpu returns the time in seconds that the main thread has worked.
func (i info) cpu() float64 { return i["used_cpu_sys_main_thread"] + i["used_cpu_user_main_thread"] }

// data returns the memory in bytes that is not for clients.
func (i info) data() float64 { return i["used_memory"] - i["mem_clients_normal"] }
