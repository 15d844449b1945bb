package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// sellOut holds the sale once for each strategy. What is finished when an error
// or the end of ctx stops it is returned as well.
func sellOut(ctx context.Context, cfg config, stderr io.Writer) ([]result, error) {
	urls, stop, err := findRedis(ctx, cfg.redis, stderr)
	if err != nil {
		return nil, err
	}
	defer stop()
	rdbs, hangUp, err := dial(urls)
	if err != nil {
		return nil, err
	}
	defer func() { _ = hangUp() }()
	var results []result
	for _, m := range cfg.methods {
		r, err := hold(ctx, cfg, m, rdbs[0], urls, stderr)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// hold holds one sale.
func hold(ctx context.Context, cfg config, m method, rdb redis.UniversalClient, urls []string, stderr io.Writer) (result, error) {
	n := cfg.shops
	if m.oneShop != "" {
		n = 1
	}
	// The Redis may serve other programs: keys of our own, new ones for each sale.
	prefix := "flashsale:" + rand.Text()[:8] + ":"
	shelf := newShelf(rdb, prefix)
	if err := shelf.fill(ctx, cfg.stock); err != nil {
		return result{}, err
	}
	defer rdb.Del(context.WithoutCancel(ctx), shelf.key)

	shops, err := openShops(ctx, n, shopConfig{Method: m.name, Config: m.config, Redis: urls, Prefix: prefix, Paused: m.paused}, stderr)
	if err != nil {
		return result{}, err
	}
	c := &crowd{buyers: cfg.buyers, concurrency: cfg.concurrency, shops: shops.urls()}
	unwatch := watch(stderr, m.name, c)
	began := time.Now()
	end := m.paused.accompany(ctx, rdb, prefix)
	c.buy(ctx)
	end()
	took := time.Since(began)
	unwatch()
	if err := errors.Join(shops.close(), ctx.Err()); err != nil {
		return result{}, err
	}
	r := newResult(m, cfg, c, took)
	m.paused.judge(ctx, rdb, prefix, &r)
	return r, nil
}
