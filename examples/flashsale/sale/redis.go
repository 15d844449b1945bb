package sale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/internal/embedredis"
)

// embeddedServers is how many a strategy finds that wants several.
const embeddedServers = 5

// findRedis returns the URLs of the servers to use, having started them if none
// are given; the func stops those.
func findRedis(ctx context.Context, urls string, stderr io.Writer) ([]string, func(), error) {
	if urls != "" {
		list := strings.Split(urls, ",")
		return list, func() {}, reachable(ctx, list)
	}
	return embedredis.Instead(stderr, "-redis", embeddedServers)
}

func reachable(ctx context.Context, urls []string) error {
	rdbs, hangUp, err := dial(urls)
	if err != nil {
		return err
	}
	defer func() { _ = hangUp() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for i, rdb := range rdbs {
		if err := rdb.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("server %d of -redis does not answer: %w", i+1, err) // its URL may hold a password
		}
	}
	return nil
}

// dial makes a client of each URL; the func closes them.
func dial(urls []string) ([]redis.UniversalClient, func() error, error) {
	var rdbs []redis.UniversalClient
	hangUp := func() (err error) {
		for _, rdb := range rdbs {
			err = errors.Join(err, rdb.Close())
		}
		return err
	}
	for _, u := range urls {
		opt, err := redis.ParseURL(u)
		if err != nil {
			return nil, nil, errors.Join(err, hangUp())
		}
		rdbs = append(rdbs, redis.NewClient(opt))
	}
	return rdbs, hangUp, nil
}
