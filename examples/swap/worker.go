package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
)

const workerKind = "swap worker"

type workerConfig struct {
	Strategy, Redis, Run string
}

// workerReport is the line that a worker prints when it ends.
type workerReport struct {
	Strategy               string
	Sections               int
	Overlaps, OutOfOrder   int
	LongestWaitMS          int64
	FirstToken, FinalToken int64
}

var strategies = map[string]func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){
	"setnx":         setnx.New,
	"hashreentrant": hashreentrant.New,
	"blpop":         blpop.New,
}

func strategyNames() string { return strings.Join(slices.Sorted(maps.Keys(strategies)), ", ") }

// work locks and checks until the parent closes the input, and then says what it saw.
func work(parent child.Parent, cfg workerConfig) error {
	opts, err := redis.ParseURL(cfg.Redis)
	if err != nil {
		return errors.New("not a Redis URL")
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	l, err := strategies[cfg.Strategy](rdb)
	if err != nil {
		return err
	}
	defer l.Close()

	ctx, stop := parent.Context()
	defer stop()
	say := json.NewEncoder(parent).Encode
	if err := say("ready"); err != nil {
		return err
	}

	r := workerReport{Strategy: cfg.Strategy}
	s := section{rdb: rdb, run: cfg.Run}
	for ctx.Err() == nil {
		began := time.Now()
		lease, err := l.Lock(ctx, cfg.Run+":lock")
		if err != nil {
			break // we are to end
		}
		r.LongestWaitMS = max(r.LongestWaitMS, time.Since(began).Milliseconds())
		if err := s.enter(lease.Token(), &r); err != nil {
			return err
		}
		if err := lease.Unlock(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return say(r)
}

// section is the critical section. It uses only the data in Redis, so
// it notices a holder in any process.
type section struct {
	rdb *redis.Client
	run string
}

func (s section) enter(token int64, r *workerReport) error {
	ctx := context.Background() // a section that was entered is finished
	inside, err := s.rdb.Incr(ctx, s.run+":inside").Result()
	if err != nil {
		return err
	}
	if inside != 1 {
		r.Overlaps++
	}
	last, err := s.rdb.Get(ctx, s.run+":token").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if token <= last {
		r.OutOfOrder++
	}
	if r.Sections++; r.Sections == 1 {
		r.FirstToken = token
	}
	r.FinalToken = token
	if err := s.rdb.Set(ctx, s.run+":token", token, time.Hour).Err(); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // the work
	return s.rdb.Decr(ctx, s.run+":inside").Err()
}
