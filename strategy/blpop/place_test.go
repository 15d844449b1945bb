package blpop

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var queueOfK = redisconn.AuxKey("locker:queue:", "k")

// place is one process's in the queue of "k", as the scripts see it: nothing makes it
// look again, and nothing pops what is pushed to it.
type place struct {
	*queueDriver
	t      *testing.T
	rdb    *redis.Client
	ttl    time.Duration
	owner  string // "" unless named
	blocks int

	claim  driver.Claim // of the last attempt
	nth    int          // of the last attempt
	before string       // the one that was refused before
	token  int64
	claims int
}

// newPlace makes a process that has not asked yet.
func newPlace(t *testing.T, rdb *redis.Client) *place {
	t.Helper()
	d := open(t, rdb)
	return &place{queueDriver: d, t: t, rdb: rdb, ttl: time.Minute, blocks: 1}
}

func open(t *testing.T, rdb redis.UniversalClient) *queueDriver {
	t.Helper()
	d, err := newDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	_, err = d.Configure(driver.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return d
}

// takePlace makes a process that waits.
func takePlace(t *testing.T, rdb *redis.Client) *place {
	t.Helper()
	p := newPlace(t, rdb)
	require.False(t, p.asks())
	return p
}

// asks makes an attempt.
func (p *place) asks() bool { return p.answer().Granted }

func (p *place) answer() driver.Answer {
	p.t.Helper()
	p.claims++
	p.nth = p.claims
	id := fmt.Sprintf("%s:%d", strings.Replace(p.inboxes.id, "-4", "-8", 1), p.claims)
	p.claim = driver.Claim{Key: "k", ID: id, Owner: id, TTL: p.ttl}
	if p.owner != "" {
		p.claim.Owner = p.owner
	}
	return p.sends()
}

// tries makes an attempt that does not wait.
func (p *place) tries() bool {
	p.t.Helper()
	p.claims++
	id := fmt.Sprintf("%s:%d", p.inboxes.id, p.claims)
	claim := driver.Claim{Key: "k", ID: id, Owner: id, TTL: p.ttl}
	a, err := p.Acquire(p.t.Context(), driver.Request{Claim: claim, Fencing: true})
	require.NoError(p.t, err)
	return a.Granted
}

// sends sends the last attempt, perhaps again.
func (p *place) sends() driver.Answer {
	p.t.Helper()
	req := driver.Request{Claim: p.claim, Fencing: true, Wait: true}
	a, err := p.AcquireWith(p.t.Context(), req, p.inboxes.name("k"), p.nth, p.blocks, p.before)
	require.NoError(p.t, err)
	if a.Granted {
		p.token, p.before = a.Token, ""
	} else {
		p.before = p.claim.ID
	}
	return a
}

// told pops what was pushed to it.
func (p *place) told() []string {
	p.t.Helper()
	list, err := p.rdb.LRange(p.t.Context(), p.inboxes.name("k"), 0, -1).Result()
	require.NoError(p.t, err)
	require.NoError(p.t, p.rdb.Del(p.t.Context(), p.inboxes.name("k")).Err())
	return list
}

// holds reports whether the lock is its last claim's.
func (p *place) holds() bool {
	p.t.Helper()
	held, err := p.rdb.HExists(p.t.Context(), "k", p.claim.ID).Result()
	require.NoError(p.t, err)
	return held
}

// wasGranted reports whether a release has granted it the lock, and told it so.
func (p *place) wasGranted() bool {
	p.t.Helper()
	told := p.told()
	if len(told) == 0 {
		return false
	}
	require.Len(p.t, told, 1)
	words := strings.Fields(told[0])
	require.Len(p.t, words, 3, "a claim and its tokens")
	require.Equal(p.t, p.claim.ID, words[0])
	_, err := fmt.Sscan(words[1], &p.token)
	require.NoError(p.t, err)
	require.True(p.t, p.holds())
	// It ends when the test says so, however slow the machine is.
	require.True(p.t, p.rdb.Persist(p.t.Context(), "k").Val())
	return true
}

// gives releases its last claim.
func (p *place) gives() error {
	c := p.claim
	c.Token = 1 // it was granted
	return p.Driver.Release(p.t.Context(), c)
}

// timePasses for "k" and all that its queue knows of.
func timePasses(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	if left := rdb.PTTL(ctx, "k").Val(); left > 0 {
		require.NoError(t, rdb.PExpire(ctx, "k", left-d).Err()) // of 0 or less deletes it
	}
	for field, value := range rdb.HGetAll(ctx, queueOfK).Val() {
		words := strings.Fields(value)
		switch field {
		case "granted", "run", "opened", "until":
			require.NoError(t, rdb.HIncrBy(ctx, queueOfK, field, -d.Milliseconds()).Err())
		default:
			if len(words) > 4 {
				var heard int64
				_, err := fmt.Sscan(words[3], &heard)
				require.NoError(t, err)
				words[3] = fmt.Sprint(heard - d.Milliseconds())
				require.NoError(t, rdb.HSet(ctx, queueOfK, field, strings.Join(words, " ")+strings.Repeat(" ", 8-len(words))).Err())
			}
		}
	}
}

// hold locks "k" in a process that does not wait.
func hold(t *testing.T, rdb *redis.Client) *place {
	t.Helper()
	p := newPlace(t, rdb)
	require.True(t, p.asks())
	return p
}

// held is hold by a Locker.
func held(t *testing.T, rdb *redis.Client) *locker.Lease {
	t.Helper()
	l, err := New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	return lease
}

func start(t *testing.T) *redis.Client {
	t.Helper()
	t.Parallel()
	return redistest.Start(t).Client(t)
}
