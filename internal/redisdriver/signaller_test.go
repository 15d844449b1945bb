package redisdriver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	lockerA = "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b"
	lockerB = "0194f2a4-58c1-4d7e-9b1a-5f3c2e1d0a9c"
)

func newSignaller(t *testing.T, rdb redis.UniversalClient) *Driver {
	t.Helper()
	d, err := NewDriver(rdb, toy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func mustListen(t *testing.T, d driver.Signaller, locker string) driver.Listener {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := d.Listen(ctx, locker)
	require.NoError(t, err)
	return l
}

func heard(t *testing.T, l driver.Listener) driver.Signal {
	t.Helper()
	select {
	case s, ok := <-l.C():
		require.True(t, ok, "C was closed")
		return s
	case <-time.After(soon):
		require.Fail(t, "no signal came")
		return driver.Signal{}
	}
}

// subscribed returns how many connections to the server are subscribed to something.
func subscribed(t *testing.T, admin *redis.Client) int {
	t.Helper()
	list, err := admin.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

// A signal reaches the Locker whose claim it is about and no other, with all of its key.
func TestSignalsReachTheirLocker(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redistest.StartCluster(t, 3, 0).Client(t)
		},
		"user's type": func(t *testing.T) redis.UniversalClient { return wrapper{redistest.Start(t).Client(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t)
			sender := newSignaller(t, rdb)
			s := driver.Signal{Kind: driver.SignalRequest, Key: "a {key}\x00 of bytes", Claim: lockerA + ":7?host=a&pid=1"}
			require.NoError(t, sender.Signal(t.Context(), s), "nobody listens")
			if _, ok := rdb.(wrapper); ok {
				_, err := newSignaller(t, rdb).Listen(t.Context(), lockerA)
				require.ErrorIs(t, err, errors.ErrUnsupported, "a client of a type of the user's subscribes to nothing")
				return
			}
			a, b := mustListen(t, newSignaller(t, rdb), lockerA), mustListen(t, newSignaller(t, rdb), lockerB)
			for _, kind := range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
				s.Kind = kind
				require.NoError(t, sender.Signal(t.Context(), s))
				require.Equal(t, s, heard(t, a))
			}
			last := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: lockerB + ":1"}
			require.NoError(t, sender.Signal(t.Context(), last))
			require.Equal(t, last, heard(t, b), "the signals before it were not b's")
			require.ErrorIs(t, sender.Signal(t.Context(), driver.Signal{Claim: "a thread of Java's"}), driver.ErrInvalid)
		})
	}
}

// Anybody may publish anything.
func TestForeignMessagesAreNoSignals(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	d := newSignaller(t, rdb)
	l := mustListen(t, d, lockerA)
	for _, payload := range []string{"", " ", "r", "r id", "  ", "request id key", "\x00"} {
		require.NoError(t, rdb.Publish(t.Context(), signalPrefix+"{"+lockerA+"}", payload).Err())
	}
	s := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: lockerA + ":1"}
	require.NoError(t, d.Signal(t.Context(), s))
	require.Equal(t, s, heard(t, l))
}

// Until somebody listens there is no connection for signals, and a while after that there is none.
func TestSignalsCostNothingUnheard(t *testing.T) {
	srv := redistest.Start(t)
	d, admin := newSignaller(t, srv.Client(t)), srv.Client(t)
	require.Zero(t, subscribed(t, admin))
	require.Nil(t, d.signals.channels)
	l := mustListen(t, d, lockerA)
	require.Equal(t, 1, subscribed(t, admin))
	l.Close()
	require.Eventually(t, func() bool { return subscribed(t, admin) == 0 }, soon, 10*time.Millisecond)
}

// Signals share the connection of releases.
func TestSignalsShareTheConnection(t *testing.T) {
	srv := redistest.Start(t)
	d, admin := newSignaller(t, srv.Client(t)), srv.Client(t)
	channels := d.NewChannels("releases:")
	w, err := channels.Watch(t.Context(), "k")
	require.NoError(t, err)
	defer w.Close()
	defer channels.Close()
	mustListen(t, d, lockerA)
	require.Equal(t, 1, subscribed(t, admin))
}

// A signal arrives that is sent after a cut connection stands again.
func TestListeningSurvivesACut(t *testing.T) {
	srv := redistest.Start(t)
	d, admin := newSignaller(t, srv.Client(t)), srv.Client(t)
	l := mustListen(t, d, lockerA)
	require.NoError(t, admin.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	s := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: lockerA + ":1"}
	require.Eventually(t, func() bool {
		require.NoError(t, d.Signal(t.Context(), s))
		select {
		case got := <-l.C():
			return got == s
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}, soon, time.Millisecond)
}

// The Locker learns that it may not listen, and that its connection has ended for good.
func TestListeningIsRefused(t *testing.T) {
	redistest.NeedsChannelRules(t)
	srv := redistest.Start(t)
	srv.AddUser(t, "locks", "secret", "+@all", "~*", "&other:*")
	o := srv.Options()
	o.Username, o.Password = "locks", "secret"
	rdb := redis.NewClient(o)
	defer rdb.Close()
	d := newSignaller(t, rdb)
	_, err := d.Listen(t.Context(), lockerA)
	require.ErrorContains(t, err, "NOPERM")
	require.True(t, driver.IsPermanent(err), "to ask again is pointless")
	var refused *driver.StoreError
	require.ErrorAs(t, d.Signal(t.Context(), driver.Signal{Kind: driver.SignalRequest, Claim: lockerA + ":1"}), &refused)
	require.True(t, refused.Permanent)

	d = newSignaller(t, srv.Client(t))
	l := mustListen(t, d, lockerA)
	require.NoError(t, d.Close())
	for range l.C() {
	}
	_, err = d.Listen(t.Context(), lockerA)
	require.Error(t, err)
}
