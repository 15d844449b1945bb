package blpop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// request is one of a caller that waits for "k", and that takes a short grant.
func request(claim int, owner string) driver.Request {
	id := fmt.Sprintf("0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:%d", claim)
	if owner == "" {
		owner = id
	}
	return driver.Request{
		Claim:   driver.Claim{Key: "k", ID: id, Owner: owner, TTL: time.Minute},
		Fencing: true, Wait: true, Short: true, Tokens: 16,
	}
}

// watching has a watch on "k". Nothing is pushed to it but by the test.
func watching(t *testing.T) *inboxes {
	t.Helper()
	d := open(t, redistest.Shared(t).Client(t))
	_, err := d.inboxes.watch("k", "")
	require.NoError(t, err)
	return d.inboxes
}

// refuse has an attempt be refused.
func refuse(t *testing.T, b *inboxes, req driver.Request) *attempt {
	t.Helper()
	at, a := b.ask(req)
	require.NotNil(t, at)
	require.False(t, a.Granted)
	require.False(t, b.answered(at, driver.Answer{}, nil).Granted)
	return at
}

func (b *inboxes) push(req driver.Request) { b.pushed([]string{req.ID + " 7 16"}) }

// A watch that is closed when the next one on its key is there already gives up what it waited for,
// and leaves the next one alone.
func TestWatchIsClosedBehindTheNextOne(t *testing.T) {
	t.Parallel()
	b := watching(t)
	in := b.open[b.name("k")]
	first := in.watches["k"]
	refuse(t, b, request(1, ""))
	next, err := b.watch("k", "")
	require.NoError(t, err)
	first.Close()
	b.mu.Lock()
	asked, watched := len(b.asked), in.watches["k"]
	b.mu.Unlock()
	require.Zero(t, asked)
	require.Same(t, next, watched)
	require.NotNil(t, refuse(t, b, request(2, "")))
	next.Close()
	b.mu.Lock()
	asked = len(b.asked)
	b.mu.Unlock()
	require.Zero(t, asked)
}

// A grant that was pushed answers the next attempt, for a part of the TTL that counts
// from before the attempt was sent that was refused; once.
func TestPushIsTheGrant(t *testing.T) {
	t.Parallel()
	b := watching(t)
	first := refuse(t, b, request(1, ""))
	b.push(request(1, ""))
	at, a := b.ask(request(2, ""))
	require.Nil(t, at, "no command is sent")
	require.Equal(t, driver.Answer{
		Granted: true, Claim: first.req.ID, Token: 7, Tokens: 16, Since: first.sent, TTL: shortGrant,
	}, a)
	b.push(request(1, "")) // it was answered
	at, _ = b.ask(request(3, ""))
	require.NotNil(t, at)
	require.Empty(t, at.before)
}

// The attempt that a push answers gets no more tokens than it asked for, whatever the one
// that the lock was granted to has asked for.
func TestPushHasNoMoreTokensThanAskedFor(t *testing.T) {
	t.Parallel()
	b := watching(t)
	for claim, asked := range map[int]int{10: 0, 20: 1, 30: 5, 40: 16, 50: 64} {
		refuse(t, b, request(claim, ""))
		b.push(request(claim, ""))
		req := request(claim+1, "")
		req.Tokens = asked
		_, a := b.ask(req)
		require.True(t, a.Granted)
		require.Equal(t, min(max(asked, 1), 16), a.Tokens, "asked for %d", asked)
	}
}

// A push may overtake the refusal that it proves.
func TestPushOvertakesTheRefusal(t *testing.T) {
	t.Parallel()
	b := watching(t)
	at, _ := b.ask(request(1, ""))
	b.push(request(1, ""))
	beside, a := b.ask(request(2, ""))
	require.NotNil(t, beside, "the first is not answered yet")
	require.False(t, a.Granted)
	a = b.answered(at, driver.Answer{Remaining: time.Second}, nil)
	require.True(t, a.Granted)
	require.Equal(t, at.req.ID, a.Claim)
	require.Equal(t, at.sent, a.Since)
}

// A grant that was pushed does not count, and a command asks for the lock: naming the
// claim that was granted.
func TestPushThatDoesNotCount(t *testing.T) {
	t.Parallel()
	later := request(2, "")
	for name, c := range map[string]struct {
		owner  string
		change func(at *attempt, later *driver.Request)
	}{
		"too late":    {"", func(at *attempt, _ *driver.Request) { at.sent = at.sent.Add(-shortGrant / 2) }},
		"a short TTL": {"", func(at *attempt, _ *driver.Request) { at.req.TTL = time.Nanosecond }},
		"a shorter TTL": {"", func(at *attempt, later *driver.Request) {
			at.sent, later.TTL = at.sent.Add(-300*time.Millisecond), 500*time.Millisecond
		}},
		"another owner":    {"ann", func(*attempt, *driver.Request) {}},
		"the owner's name": {"", func(_ *attempt, later *driver.Request) { later.Owner = "ann" }},
		"a whole TTL":      {"", func(_ *attempt, later *driver.Request) { later.Short = false }},
	} {
		t.Run(name, func(t *testing.T) {
			b, later := watching(t), later
			at := refuse(t, b, request(1, c.owner))
			b.push(request(1, c.owner))
			c.change(at, &later)
			next, a := b.ask(later)
			require.NotNil(t, next)
			require.False(t, a.Granted)
			require.Equal(t, []*attempt{at}, next.before)
		})
	}
}

// Once an attempt has named a claim, a push for that claim does not count: the attempt,
// however late it arrives, is granted the lock instead. If it is not answered, the next
// attempt names the claim again.
func TestClaimThatWasNamedIsSpent(t *testing.T) {
	t.Parallel()
	b := watching(t)
	first := refuse(t, b, request(1, ""))
	lost, _ := b.ask(request(2, ""))
	require.Equal(t, []*attempt{first}, lost.before)
	b.push(request(1, ""))
	beside, a := b.ask(request(3, ""))
	require.False(t, a.Granted)
	require.Equal(t, []*attempt{first}, beside.before)
	b.answered(lost, driver.Answer{}, context.DeadlineExceeded)
	b.push(request(2, "")) // it is released
	require.False(t, b.answered(beside, driver.Answer{}, nil).Granted)
	b.push(request(1, "")) // the place is the third's
	at, a := b.ask(request(4, ""))
	require.False(t, a.Granted)
	require.Equal(t, []*attempt{lost, beside}, at.before)
}

// An attempt without an answer may be applied late, and take the place or the lock: later
// ones name it, until one was answered.
func TestUnansweredAttemptsAreNamed(t *testing.T) {
	t.Parallel()
	b := watching(t)
	ask := func(claim int) *attempt {
		at, a := b.ask(request(claim, ""))
		require.False(t, a.Granted)
		return at
	}
	first := ask(1)
	b.answered(first, driver.Answer{}, context.DeadlineExceeded)
	b.push(request(1, "")) // the Locker releases it
	second := ask(2)
	require.Equal(t, []*attempt{first}, second.before)
	b.answered(second, driver.Answer{}, &driver.StoreError{NotApplied: true})
	third := ask(3)
	require.Equal(t, []*attempt{first}, third.before, "the second did not reach the server")
	b.answered(third, driver.Answer{}, nil)
	fourth := ask(4)
	require.Equal(t, []*attempt{third}, fourth.before)
	b.answered(fourth, driver.Answer{Granted: true}, nil)
	require.Empty(t, ask(5).before)

	for claim := 6; claim < 100; claim++ { // an outage
		b.answered(ask(claim), driver.Answer{}, context.DeadlineExceeded)
	}
	require.Len(t, ask(100).before, mostNamed)
}

// When an attempt is granted the lock, the place that a later one has taken beside it is
// given up: no release grants the lock to a process where none looks for it.
func TestPlaceBesideAGrantIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, refusedBefore := range map[string]bool{"refused before the grant": true, "refused after it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			d, holder := open(t, rdb), hold(t, rdb)
			b := d.inboxes
			_, err := b.watch("k", "")
			require.NoError(t, err)
			slow, _ := b.ask(request(1, ""))
			beside, _ := b.ask(request(2, ""))
			a, err := d.AcquireWith(t.Context(), beside.req, beside.args()...)
			require.NoError(t, err)
			require.True(t, rdb.Persist(t.Context(), queueOfK).Val(), "the place does not expire")
			granted := func() {
				b.push(request(1, ""))
				require.True(t, b.answered(slow, driver.Answer{}, nil).Granted)
			}
			if !refusedBefore {
				granted()
			}
			require.False(t, b.answered(beside, a, nil).Granted)
			if refusedBefore {
				granted()
			}
			pace.Eventually(t, 5*time.Second, "the place is given up", func() bool {
				return !rdb.HExists(t.Context(), queueOfK, b.name("k")).Val()
			})
			require.NoError(t, holder.gives())
			require.Zero(t, rdb.Exists(t.Context(), "k").Val())
		})
	}
}

// A push for a claim that the process does not know any more (it was stopped for long, the
// claim was given up) is no grant.
func TestOldPush(t *testing.T) {
	t.Parallel()
	b := watching(t)
	b.pushed([]string{"", "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:9 7 1", "a b c d", "  "})
	refuse(t, b, request(1, ""))
	b.pushed([]string{request(1, "").ID, request(1, "").ID + " x 1"}) // to look, and nonsense
	at, a := b.ask(request(2, ""))
	require.NotNil(t, at)
	require.False(t, a.Granted)
}

// An attempt that is applied after its waiter has left leaves no place in the queue, once
// it was cleaned up.
func TestLateAttemptLeavesNoPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct, proxy := server.Client(t), faultproxy.Start(t, server.Addr())
	held(t, direct)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	d := open(t, rdb)
	w, err := d.Watch(t.Context(), "k")
	require.NoError(t, err)
	a, err := d.Acquire(t.Context(), request(1, "")) // the script is known
	require.NoError(t, err)
	require.False(t, a.Granted)
	inbox := d.inboxes.name("k")
	queued := func() bool { return direct.HExists(t.Context(), queueOfK, inbox).Val() }
	require.True(t, queued())
	w.Close()
	pace.Eventually(t, 5*time.Second, "its place is given up with the watch", func() bool { return !queued() })

	_, err = d.Watch(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delayed := proxy.Delay(faultproxy.MatchCommand("EVALSHA"), 1, time.Hour)
	go func() {
		<-delayed.Done()
		cancel()
	}()
	_, err = d.Acquire(ctx, request(2, ""))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, queued(), "the attempt is on its way")
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context(), request(2, "").Claim) }() // as the Locker does
	delayed.Stop()
	require.ErrorIs(t, <-released, driver.ErrLost)
	require.False(t, queued())
	require.True(t, direct.HExists(t.Context(), queueOfK, "<").Val(), "it had a place")
}

// Where replicas are to confirm a grant, one by a release is asked for by a command.
func TestReplicasConfirm(t *testing.T) {
	t.Parallel()
	d, err := newDriver(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	l, err := redisdriver.Open(d, []locker.Option{WithReplicaAcks(1, time.Second)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	_, err = d.inboxes.watch("k", "")
	require.NoError(t, err)
	refuse(t, d.inboxes, request(1, ""))
	d.inboxes.push(request(1, ""))
	at, a := d.inboxes.ask(request(2, ""))
	require.NotNil(t, at)
	require.False(t, a.Granted)
}
