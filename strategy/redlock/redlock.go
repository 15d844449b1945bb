package redlock

import (
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/strategy/internal/layouts"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var (
	acquireScript = redisdriver.NewScript("acquire", files)
	confirmScript = redisdriver.NewScript("confirm", files)
	renewScript   = redisdriver.NewScript("renew", files)
	joinScript    = redisdriver.NewScript("join", files)
	releaseScript = redisdriver.NewScript("release", files)
)

// channelPrefix begins the channels of release notices.
const channelPrefix = "locker:released:"

type nodeTimeout time.Duration

// WithNodeTimeout sets how long one node may take for one command before it is
// counted as absent, and skipped until it answers again. d is 1 ms or more. Default half of the TTL, but no more
// than 1 s.
func WithNodeTimeout(d time.Duration) locker.Option {
	return locker.WithDriverOption(nodeTimeout(d))
}

// New makes a Locker on independent masters, one client each: an odd number of
// them, at least 3, none of which replicates another. A server that is given twice
// is refused once both have said who they are, which they do before their first command.
// The clients stay the caller's; for each the Locker opens some three connections of its
// own, and one for notices while a caller waits.
func New(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdbs)
	if err != nil {
		return nil, err
	}
	l, err := locker.New(d, opts...)
	if err != nil {
		_ = d.closeNodes()
		return nil, err
	}
	return l, nil
}

func newDriver(rdbs []redis.UniversalClient) (*quorumDriver, error) {
	if len(rdbs) < 3 || len(rdbs)%2 == 0 {
		return nil, fmt.Errorf("locker: %w: redlock needs an odd number of nodes, at least 3, not %d (an even number tolerates no more failures than one node fewer); for a single Redis take setnx, hashreentrant or blpop", locker.ErrInvalid, len(rdbs))
	}
	d := &quorumDriver{quorum: len(rdbs)/2 + 1, nodeChanged: func(string, error) {}, attempts: make(chan struct{}, mostAttempts)}
	d.holds.byID = make(map[string]*hold)
	d.ids.runIDs = make(map[*node]string)
	clients := make(map[*redis.Client]int)
	for i, rdb := range rdbs {
		if c, ok := rdb.(*redis.Client); ok && c != nil {
			if first, twice := clients[c]; twice {
				_ = d.closeNodes()
				return nil, fmt.Errorf("locker: %w: nodes #%d and #%d are the same client; each node must be an independent master", locker.ErrInvalid, first+1, i+1)
			}
			clients[c] = i
		}
		n := &node{d: d, name: fmt.Sprintf("#%d", i+1)}
		var err error
		n.Driver, err = redisdriver.NewDriver(rdb, redisdriver.Protocol{
			Name:    "redlock",
			Layouts: layouts.All,
			Acquire: acquireScript,
			Renew:   renewScript,
			Release: releaseScript,
		})
		if err != nil {
			_ = d.closeNodes()
			return nil, fmt.Errorf("node %s: %w", n.name, err)
		}
		if c, ok := rdb.(*redis.Client); ok && strings.Contains(c.Options().Addr, ":") {
			n.name = c.Options().Addr // not that of clients who ask Sentinels: they all have the same
		}
		n.channels = n.NewChannels(channelPrefix)
		d.nodes = append(d.nodes, n)
	}
	return d, nil
}
