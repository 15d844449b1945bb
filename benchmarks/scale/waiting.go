package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Waiting asks for goroutines that wait for held keys.
type Waiting struct{ Goroutines, Keys int }

// WaitingResult has the cost of the goroutines.
type WaitingResult struct {
	Bytes         float64 // for a goroutine, its stack included
	CPU, RedisCPU float64 // seconds, of a second
	Commands      float64 // a second
	Through       float64 // seconds until each has had its lock once
	ThroughCPU    float64 // seconds, of this process
	ThroughRedis  float64
	ThroughCalls  float64 // commands
	Failed        int64
	Connections   float64
	Left          int // goroutines of ours, two seconds later
}

func workWaiting(ctx context.Context, job Job, cfg Waiting) (r WaitingResult, err error) {
	h, err := hold(ctx, job, cfg.Keys, time.Minute, func(*holder) error { return nil })
	if err != nil {
		return r, err
	}
	goroutines := runtime.NumGoroutine()
	empty := memory()
	var all sync.WaitGroup
	var failed atomic.Int64
	for i := range cfg.Goroutines {
		all.Go(func() {
			lease, err := h.locks.Lock(ctx, fmt.Sprint("held:", i%cfg.Keys))
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if err != nil {
				failed.Add(1)
			}
		})
	}
	bound.Sleep(ctx, nil, 5*time.Second) // all have asked by then
	r.Bytes = (memory() - empty) / float64(cfg.Goroutines)
	before, err := infoOf(ctx, h.rdb)
	if err != nil {
		return r, err
	}
	began, beganCPU := time.Now(), cpu()
	bound.Sleep(ctx, nil, 10*time.Second) // it is commands in a time that are counted
	took := time.Since(began).Seconds()
	after, err := infoOf(ctx, h.rdb)
	if err != nil {
		return r, err
	}
	d := after.minus(before)
	r.CPU, r.RedisCPU, r.Commands = (cpu()-beganCPU).Seconds()/took, d.cpu()/took, d["total_commands_processed"]/took
	r.Connections = after["connected_clients"] - 1
	began, beganCPU = time.Now(), cpu()
	if err := each(len(h.leases), 256, func(i int) error { return h.leases[i].Unlock(ctx) }); err != nil {
		return r, err
	}
	all.Wait()
	r.Through, r.ThroughCPU = time.Since(began).Seconds(), (cpu() - beganCPU).Seconds()
	end, err := infoOf(ctx, h.rdb)
	d = end.minus(after)
	r.ThroughRedis, r.ThroughCalls, r.Failed = d.cpu(), d["total_commands_processed"], failed.Load()
	bound.Sleep(ctx, nil, 2*time.Second) // what rule R24 allows
	r.Left = runtime.NumGoroutine() - goroutines
	return r, err
}

func measureWaiting(ctx context.Context, cfg *config) (string, error) {
	var t table
	t.row("", "goroutines", "keys", "client memory, a goroutine", "client CPU, of a core", "Redis CPU, of a core", "commands per second",
		"until all had their lock", "client CPU", "Redis CPU", "commands, a goroutine", "failed")
	for _, s := range cfg.only {
		r, err := inProcess[WaitingResult](ctx, "waiting", s, Waiting{cfg.goroutines, cfg.keys})
		if err != nil {
			return "", err
		}
		progress("waiting: %s: %+v", s, r)
		t.row(s, count(cfg.goroutines), count(cfg.keys), bytes(r.Bytes), percent(r.CPU), percent(r.RedisCPU), count(r.Commands),
			seconds(r.Through), seconds(r.ThroughCPU), seconds(r.ThroughRedis), fmt.Sprintf("%.2f", r.ThroughCalls/float64(cfg.goroutines)), r.Failed)
	}
	return t.String(), nil
}
