package setnx

import (
	"embed"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/strategy/internal/layouts"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var protocol = redisdriver.Protocol{
	Name:    "setnx",
	Layouts: layouts.All,
	Acquire: redisdriver.NewScript("acquire", files),
	Renew:   redisdriver.NewScript("renew", files),
	Release: redisdriver.NewScript("release", files),
}

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 20 connections of its own
// for its commands, so that they go through whatever rdb is busy with.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := redisdriver.NewDriver(rdb, protocol)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, opts)
}
