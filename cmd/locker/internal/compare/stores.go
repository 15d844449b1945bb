package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

// candidate is a strategy that can be compared.
type candidate struct {
	name   string
	single redisconformance.Strategy // New is nil for a quorum
}

var candidates = []candidate{
	{"setnx", redisconformance.Strategy{Name: "setnx", New: setnx.New, Permits: true}},
	{"hashreentrant", redisconformance.Strategy{Name: "hashreentrant", New: hashreentrant.New, StoredHolds: true, Permits: true, Notified: true}},
	{"blpop", redisconformance.Strategy{Name: "blpop", New: blpop.New, StoredHolds: true, Permits: true, Notified: true, Fair: true}},
	{"redlock", redisconformance.Strategy{}},
}

// on returns what the strategy promises on a server that reports this version: waiters of blpop poll where no BLPOP may be sent.
func (c candidate) on(version string) redisconformance.Strategy {
	s := c.single
	s.Notified = s.Notified && (c.name != "blpop" || redisconn.TakesBLPOP(version))
	return s
}

// stores are the servers that are compared on.
type stores struct {
	own   bool     // started for this, and so to be crashed
	embed bool     // they are within a process
	urls  []string // of Redis: the first one is for strategies on one server
	bare  bool     // each strategy of one server is compared there
	mark  string   // in every key
	about string
	stop  func()

	broken []*faulty // the servers of urls, if they can be

	started   bool     // other stores are to be started, too
	more      []string // URLs of single strategies
	moreRedis []string // those of them that are of Redis
	missing   []string // why stores were not started
	ends      []func() // what ends with this
}

// end ends what was started.
func (s *stores) end() {
	for _, f := range slices.Backward(s.ends) {
		f()
	}
	s.stop()
}

const quorumNodes = 3

// openStores finds or starts the servers.
func openStores(ctx context.Context, urls, nodes []string) (*stores, error) {
	s := &stores{mark: fmt.Sprintf("locker-compare:%x:", rand.Uint32()), stop: func() {}}
	if len(urls) > 0 || len(nodes) > 0 {
		return s, s.find(ctx, urls, nodes)
	}
	return s.launch(ctx)
}

// find finds the servers of the given URLs.
func (s *stores) find(ctx context.Context, urls, nodes []string) error {
	for _, u := range urls {
		scheme, _, isURL := strings.Cut(u, "://")
		_, last, combined := strings.Cut(scheme, "+")
		switch single := slices.Contains([]string{"redis", "rediss", "unix"}, scheme); {
		case scheme == "memory":
			return fmt.Errorf("%w: memory is no store of yours; without --url it is compared, too", ErrUsage)
		case isURL && (combined || !single && !strings.Contains(scheme, "redis")):
			s.more = append(s.more, u)
			if strings.HasPrefix(last, "redis") || last == "unix" {
				s.moreRedis = append(s.moreRedis, u)
			}
		case s.bare:
			return fmt.Errorf("%w: two URLs name no strategy: put a strategy before the scheme of each, as in setnx+redis://", ErrUsage)
		default:
			s.urls, s.bare = []string{u}, true
		}
	}
	if len(nodes) > 0 && len(s.urls) == 0 {
		s.urls, s.bare = nodes[:1:1], len(urls) == 0
	}
	s.urls = append(s.urls, nodes...)
	if err := s.reachable(ctx); err != nil {
		return err
	}
	for _, u := range s.more {
		if err := (place{URL: u, Mark: s.mark}).probe(ctx); err != nil {
			return err
		}
	}
	if len(s.urls) > 0 {
		s.about = "a server of yours, Redis " + version(ctx, s.urls[0])
	}
	return nil
}

// probe finds out whether locks can be taken.
func (p place) probe(ctx context.Context) error {
	l, release, err := p.open(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	defer release()
	lease, err := l.TryLock(ctx, "probe")
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// redisURLs returns the URLs of all Redis servers.
func (s *stores) redisURLs() []string { return slices.Concat(s.urls, s.moreRedis) }

// launch starts servers: Redis', and later those of contestants.
func (s *stores) launch(ctx context.Context) (*stores, error) {
	s.bare, s.started = true, true
	var stops []func()
	s.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	server, stop, err := redistest.Launch()
	if err == nil {
		stops = append(stops, stop)
		s.own, s.urls, s.broken = true, []string{server.URL()}, []*faulty{faultyRedis(server)}
		for range quorumNodes {
			node, stop, err := redistest.Launch()
			if err != nil {
				s.stop()
				return nil, err
			}
			stops = append(stops, stop)
			s.urls, s.broken = append(s.urls, node.URL()), append(s.broken, faultyRedis(node))
		}
		s.about = "redis-server " + version(ctx, server.URL()) + ", started for this on this machine"
		return s, nil
	}
	if err := s.startEmbedded(); err != nil {
		return nil, err
	}
	s.about = "miniredis within this program, as no redis-server is installed: its figures are not those of a Redis"
	return s, nil
}

func faultyRedis(s *redistest.Server) *faulty {
	return &faulty{freeze: s.Pause, thaw: s.Resume, kill: s.Kill, revive: func(context.Context) error { return s.Revive() }}
}

// breakable returns the server for single strategies, or with i = 1 those of the quorum.
func (s *stores) breakable(i int) []*faulty {
	switch {
	case len(s.broken) == 0:
		return nil
	case i == 0:
		return s.broken[:1]
	}
	return s.broken[1:]
}

// startEmbedded starts servers within this process.
func (s *stores) startEmbedded() error {
	var stops []func()
	s.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	s.embed, s.urls = true, nil
	for range 1 + quorumNodes {
		server, err := embedredis.Start()
		if err != nil {
			s.stop()
			return err
		}
		stops = append(stops, server.Close)
		s.urls = append(s.urls, server.URL())
	}
	return nil
}

func (s *stores) reachable(ctx context.Context) error {
	seen := make(map[string]bool)
	for i, url := range s.redisURLs() {
		o, err := options(url)
		if err != nil {
			return err
		}
		o.MaxRetries, o.DialerRetries = -1, 1
		c := redis.NewClient(o)
		// With what the clean-up needs, before there is anything to be cleaned.
		if err = c.Set(ctx, s.mark+"probe", "", time.Second).Err(); err == nil {
			err = errors.Join(c.Scan(ctx, 0, "*"+s.mark+"*", 1).Err(), c.Unlink(ctx, s.mark+"probe").Err())
		}
		id := c.InfoMap(ctx, "server").Item("Server", "run_id")
		_ = c.Close()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", o.Addr, err)
		case i > 0 && i < len(s.urls) && id != "" && seen[id]:
			return fmt.Errorf("%w: two of --nodes are the same server, %s; each must be independent of the others", ErrUsage, o.Addr)
		case i > 0 && i < len(s.urls):
			seen[id] = true
		}
	}
	return nil
}

// options returns the options of a client of a server, given by a URL with or without a strategy.
func options(url string) (*redis.Options, error) {
	if _, rest, ok := strings.Cut(url, "+"); ok && !strings.Contains(url[:strings.Index(url, "+")], ":") {
		url = rest
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		// (It may have a password anywhere.)
		return nil, fmt.Errorf("%w: a URL is not that of a single server, which compare needs: redis://user:password@host:6379/0, rediss://... or unix:///path", ErrUsage)
	}
	return o, nil
}

func version(ctx context.Context, url string) string {
	o, err := options(url)
	if err != nil {
		return ""
	}
	c := redis.NewClient(o)
	defer c.Close()
	info, _ := c.Info(ctx, "server").Result()
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// find returns the candidate of a name.
func find(name string) (candidate, error) {
	for _, c := range candidates {
		if c.name == name {
			return c, nil
		}
	}
	return candidate{}, fmt.Errorf("%w: there is no strategy %q to compare: %s", ErrUsage, name, strings.Join(Names(), ", "))
}

// ErrUsage is matched by errors that another command line puts right.
var ErrUsage = errors.New("wrong usage")

var errNoNodes = fmt.Errorf("%w: redlock needs three servers or more, an odd number: give them by --nodes, or leave redlock out by --strategies", ErrUsage)

func (s *stores) nodes() (all []*redis.Options, err error) {
	if len(s.urls) < 1+3 || len(s.urls)%2 != 0 {
		return nil, errNoNodes
	}
	for _, url := range s.urls[1:] {
		o, err := options(url)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

const (
	pageKeys = 1000
	pageTime = 10 * time.Second // for each page: a server that is far takes longer in all
)

// cleanUp deletes what is left of our keys on servers that stay.
func (s *stores) cleanUp(ctx context.Context) (err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, url := range s.redisURLs() { // at the same time: any number of them may be silent
		all.Go(func() {
			left := s.deleteOwn(ctx, url)
			mu.Lock()
			defer mu.Unlock()
			if left != nil && err == nil { // one says enough
				err = &LeftError{s.mark, left}
			}
		})
	}
	all.Wait()
	return err
}

// deleteOwn takes two round trips a page at most.
func (s *stores) deleteOwn(ctx context.Context, url string) error {
	o, err := options(url)
	if err != nil {
		return err
	}
	c := redis.NewClient(o)
	defer c.Close()
	deletePage := func(cursor uint64) (next uint64, err error) {
		ctx, cancel := context.WithTimeout(ctx, pageTime)
		defer cancel()
		keys, next, err := c.Scan(ctx, cursor, "*"+s.mark+"*", pageKeys).Result()
		if err == nil && len(keys) > 0 {
			_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range keys {
					p.Unlink(ctx, key)
				}
				return nil
			})
		}
		return next, err
	}
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		if cursor, err = deletePage(cursor); err != nil {
			return fmt.Errorf("%s: %w", o.Addr, err)
		}
	}
	return nil
}
