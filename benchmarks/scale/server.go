package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

var strategies = map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
	"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New,
}

// startServer starts a server for many connections.
func startServer(s *rig.Stage) *redistest.Server {
	return redistest.Start(s, redistest.WithConfig("--tcp-backlog", "4096", "--maxclients", "19000"))
}

// An info has the numbers of a server's INFO.
type info map[string]float64

func infoOf(ctx context.Context, c *redis.Client) (info, error) {
	sections, err := c.InfoMap(ctx, "cpu", "clients", "memory", "stats", "commandstats").Result()
	out := info{}
	for _, fields := range sections {
		for name, value := range fields {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				out[name] = v
			} else if calls := callsIn.FindStringSubmatch(value); calls != nil {
				out["calls_"+strings.TrimPrefix(name, "cmdstat_")], _ = strconv.ParseFloat(calls[1], 64) // digits
			}
		}
	}
	return out, err
}

var callsIn = regexp.MustCompile(`^calls=(\d+)`)

// minus returns what has been added since then.
func (i info) minus(then info) info {
	out := info{}
	for name, v := range i {
		out[name] = v - then[name]
	}
	return out
}

// cpu returns for how many seconds the main thread has worked.
func (i info) cpu() float64 { return i["used_cpu_sys_main_thread"] + i["used_cpu_user_main_thread"] }

// cpu returns for how long this process has worked.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no reason to fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
