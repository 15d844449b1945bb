package strategy_test

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/memory"
)

// The same for every strategy: in production the URL comes from the environment.
func ExampleOpenURL() {
	ctx := context.Background()
	locks, release, err := strategy.OpenURL(ctx, "memory://shop?ttl=10s&prefix=shop:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()

	err = locker.Do(ctx, locks, "orders/42", func(ctx context.Context) error {
		fmt.Println("nobody else ships order 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else ships order 42
	// <nil>
}

// A wrong URL says what is wrong with it, and no password.
func ExampleOpenURL_wrong() {
	_, _, err := strategy.OpenURL(context.Background(), "setnx+redis://app:hunter2@redis:6379/0?renew_interval=45s")
	fmt.Println(err)
	_, _, err = strategy.OpenURL(context.Background(), "memory://?tll=10s")
	fmt.Println(err)
	// Output:
	// locker: invalid use: config renew_interval "45s": WithRenewInterval(45s) is too long for a TTL of 30s: the lease would end before its first renewal
	// locker: invalid use: config url "memory:///?tll=xxxxx": unknown parameter tll; there are fencing, hand_over, loss_detection, margin, max_hold, max_renewals, prefix, renew_interval, renewal, replica_acks, replica_acks_timeout, sticky, ttl, wait
}

func ExampleOpen() {
	cfg, err := strategy.ParseYAML([]byte(`
strategy: memory # in production blpop, with
# addrs: ["redis-1:6379", "redis-2:6379"]
# cluster: true
ttl: 10s
max_hold: 5m
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, release, err := strategy.Open(context.Background(), cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()

	lease, err := locks.Lock(context.Background(), "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock(context.Background())
	fmt.Println(cfg, "keeps", lease.Key(), "for", time.Until(lease.Deadline()).Round(time.Second))
	// Output:
	// {"max_hold":"5m0s","strategy":"memory","ttl":"10s"} keeps report for 10s
}

// A strategy of one's own, on a store that is not Redis.
func ExampleRegister() {
	store := memory.NewStore()
	err := strategy.Register("acme", strategy.Opener{
		Other: func(_ context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
			fmt.Println("connecting to", u.Host)
			l, err := locker.New(store.Driver(), opts...)
			return l, func() { fmt.Println("hanging up") }, err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, release, err := strategy.OpenURL(context.Background(), "acme://store:7777?ttl=5s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()
	lease, err := locks.TryLock(context.Background(), "k")
	fmt.Println(lease.Holds(), err)
	// Output:
	// connecting to store:7777
	// 1 <nil>
	// hanging up
}
