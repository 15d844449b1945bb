package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/spf13/cobra"
)

// lockFlags say what is taken at a key, how long it is waited for, and how long it lasts.
type lockFlags struct {
	wait, ttl         time.Duration
	shared, exclusive bool
	permits, of       int
}

const lockHelp = `With --shared it holds KEY as a reader: all readers hold KEY together. With --exclusive it
holds KEY alone, as a writer, and readers that come later wait for it. Without either flag
it holds KEY alone, too, but readers that come later go first. With --of M, KEY has M
permits, and it takes one of them, or --permits N. The strategies setnx, hashreentrant,
blpop, postgres, mysql and etcd have these flags. Use a KEY in one way
only: as a plain lock, for readers and writers (--shared, --exclusive), or with --of.`

func (f *lockFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.DurationVar(&f.wait, "wait", -1, "how long to wait for the lock; 0 is one attempt (default until it is free)")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the lock stays when this process dies: 100ms to 24h (default as configured, or 30s)")
	flags.BoolVarP(&f.shared, "shared", "s", false, "hold it as a reader, together with all other readers")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold it alone, as a writer among readers (--shared)")
	flags.IntVar(&f.permits, "permits", 1, "how many permits to take, with --of")
	flags.IntVar(&f.of, "of", 0, fmt.Sprintf("how many permits KEY has, 1 to %d (default none: it is a lock)", locker.MaxPermits))
	flags.Lookup("wait").DefValue = "0s"
	flags.Lookup("of").DefValue = "0"
}

// check finds what is wrong with the flags.
func (f *lockFlags) check(c *cobra.Command) error {
	changed := c.Flags().Changed
	switch {
	case changed("wait") && (f.wait < 0 || f.wait > locker.MaxDuration):
		return fmt.Errorf("--wait=%v: 0s to %v; leave it out to wait without end", f.wait, locker.MaxDuration)
	case changed("ttl") && (f.ttl < locker.MinTTL || f.ttl > locker.MaxTTL):
		return fmt.Errorf("--ttl=%v: %v to %v", f.ttl, locker.MinTTL, locker.MaxTTL)
	case f.shared && f.exclusive:
		return errors.New("--shared and --exclusive: one of them")
	case (f.shared || f.exclusive) && changed("of"):
		return errors.New("--of counts permits, and is for neither --shared nor --exclusive")
	case changed("permits") && !changed("of"):
		return errors.New("--permits needs --of: how many permits there are in all")
	case changed("of") && (f.of < 1 || f.of > locker.MaxPermits):
		return fmt.Errorf("--of=%d: 1 to %d", f.of, locker.MaxPermits)
	case changed("of") && (f.permits < 1 || f.permits > f.of):
		return fmt.Errorf("--permits=%d: 1 to %d, the value of --of", f.permits, f.of)
	}
	return nil
}

// options returns the options of the flags that were given.
func (f *lockFlags) options() (opts []locker.LockOption) {
	if f.wait >= 0 {
		opts = append(opts, locker.WithWait(f.wait))
	}
	if f.ttl > 0 {
		opts = append(opts, locker.WithTTL(f.ttl))
	}
	return opts
}

// lock takes what the flags say at key, of a store of the strategy.
func (f *lockFlags) lock(ctx context.Context, l *locker.Client, strategy, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	opts = append(f.options(), opts...)
	keepsPermits := func() bool {
		_, err := locker.NewSemaphore(l, key, 1)
		return err == nil
	}
	switch {
	case f.of > 0:
		if !keepsPermits() {
			return nil, &exit{exitUsage, fmt.Errorf("--of: %s keeps no permits; setnx, hashreentrant, blpop, postgres, mysql and etcd do", strategy)}
		}
		s, err := locker.NewSemaphore(l, key, f.of)
		if err != nil {
			return nil, err
		}
		return s.AcquireN(ctx, f.permits, opts...)
	case f.shared || f.exclusive:
		if !keepsPermits() && !slices.Contains(redisStrategies, strategy) {
			return nil, &exit{exitUsage, fmt.Errorf("--shared, --exclusive: %s lets in one process at a time; setnx, hashreentrant, blpop, postgres, mysql and etcd let in all that say --shared", strategy)}
		}
		rw, err := locker.NewRWLock(l, key)
		switch {
		case err != nil:
			return nil, err
		case f.shared:
			return rw.RLock(ctx, opts...)
		}
		return rw.Lock(ctx, opts...)
	}
	return l.Lock(ctx, key, opts...)
}

// token returns the token of a lease; 0 if it is no fence: holders of permits with smaller tokens are inside rightfully.
func (f *lockFlags) token(lease *locker.Lease) int64 {
	if f.of > 0 {
		return 0
	}
	return lease.Token()
}

// lasts returns the TTL of the lock.
func (f *lockFlags) lasts(cfg strategy.Config) time.Duration {
	ttl := cfg.TTL
	if u, err := url.Parse(cfg.URL); err == nil && u.Query().Has("ttl") {
		ttl, _ = time.ParseDuration(u.Query().Get("ttl")) // what is wrong with it the library says
	}
	switch {
	case f.ttl > 0:
		return f.ttl
	case ttl > 0:
		return ttl
	}
	return locker.DefaultTTL
}
