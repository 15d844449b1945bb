package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/fencetest"
	"github.com/distlock/locker/fence/redisfence"
	"github.com/distlock/locker/internal/test/redistest"
)

// resource is a Guard with the values of Set.
type resource struct {
	*redisfence.Guard
	rdb redis.UniversalClient
}

func (r resource) Write(ctx context.Context, key string, token int64, value string) error {
	return r.Set(ctx, key, token, value, time.Hour)
}

func (r resource) Read(ctx context.Context, key string) (string, error) {
	value, err := r.rdb.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

func newGuard(tb testing.TB, rdb redis.UniversalClient, opts ...redisfence.Option) *redisfence.Guard {
	tb.Helper()
	g, err := redisfence.New(rdb, opts...)
	require.NoError(tb, err)
	return g
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	fencetest.Run(t, func(tb testing.TB) fence.Guard {
		rdb := server.Client(tb)
		return resource{newGuard(tb, rdb), rdb}
	})
}

// On a cluster the keys of each script are in one slot, whatever the key.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.BorrowCluster(t, 3, 0)
	fencetest.Run(t, func(tb testing.TB) fence.Guard {
		rdb := cluster.Client(tb)
		return resource{newGuard(tb, rdb, redisfence.WithRetention(time.Hour)), rdb}
	})
	rdb := cluster.Client(t)
	g := newGuard(t, rdb)
	for _, key := range []string{"a", "{a}", "x{a}y", "}", "{", "{}", "{}a", "a}b", "{a}{b}", "\x00", "\xff{\xfe}"} {
		require.NoError(t, g.Set(t.Context(), key, 7, key, 0))
		require.Equal(t, key, rdb.Get(t.Context(), key).Val())
		require.ErrorIs(t, g.Set(t.Context(), key, 6, "late", 0), fence.ErrStale)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	g := newGuard(t, rdb)
	require.NoError(t, g.Set(ctx, "report", 9, []byte("nine"), time.Minute))
	require.InDelta(t, time.Minute, rdb.PTTL(ctx, "report").Val(), float64(10*time.Second))
	require.Equal(t, "9", rdb.Get(ctx, "locker:guard:{report}").Val())
	require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, "locker:guard:{report}").Val(), "a guard's key does not expire")

	err := g.Set(ctx, "report", 8, "eight", 0)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fence.StaleError{Key: "report", Token: 8, Seen: 9}, *stale)
	require.Equal(t, "nine", rdb.Get(ctx, "report").Val())

	require.NoError(t, g.Set(ctx, "report", 10, "ten", 0))
	require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, "report").Val())
	require.NoError(t, rdb.Del(ctx, "report").Err())
	require.ErrorIs(t, g.Set(ctx, "report", 9, "nine", 0), fence.ErrStale, "the token outlives the value")
}

func TestRetention(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	g := newGuard(t, rdb, redisfence.WithRetention(48*time.Hour), redisfence.WithPrefix("app:guard:"))
	require.NoError(t, g.Admit(ctx, "report", 9))
	require.InDelta(t, 48*time.Hour, rdb.PTTL(ctx, "app:guard:{report}").Val(), float64(time.Minute))
	require.NoError(t, rdb.PExpire(ctx, "app:guard:{report}", time.Hour).Err())
	require.ErrorIs(t, g.Admit(ctx, "report", 8), fence.ErrStale)
	require.Less(t, rdb.PTTL(ctx, "app:guard:{report}").Val(), 2*time.Hour, "a refused one prolongs nothing")
	require.NoError(t, g.Admit(ctx, "report", 9))
	require.Greater(t, rdb.PTTL(ctx, "app:guard:{report}").Val(), 47*time.Hour)
}

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	g := newGuard(t, rdb)
	put := redisfence.NewScript(`
		redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
		return {#KEYS, #ARGV, KEYS[2]}`)
	got, err := g.Run(ctx, put, "stock", 9, []string{"{stock}:lamps", "{stock}:more"}, "blue", 3)
	require.NoError(t, err)
	require.Equal(t, []any{int64(2), int64(2), "{stock}:more"}, got)
	_, err = g.Run(ctx, put, "stock", 8, []string{"{stock}:lamps", "{stock}:more"}, "blue", 4)
	require.ErrorIs(t, err, fence.ErrStale)
	require.Equal(t, map[string]string{"blue": "3"}, rdb.HGetAll(ctx, "{stock}:lamps").Val())

	got, err = g.Run(ctx, redisfence.NewScript(""), "stock", 9, nil)
	require.NoError(t, err)
	require.Nil(t, got)

	_, err = g.Run(ctx, redisfence.NewScript(`return redis.error_reply('FULL no room')`), "stock", 10, nil)
	require.ErrorContains(t, err, "FULL no room")
	require.NotErrorIs(t, err, fence.ErrStale)
	require.ErrorIs(t, g.Admit(ctx, "stock", 9), fence.ErrStale, "the token counts although the body has failed")
}

// A value at the guard's key that is no token of ours is not overwritten.
func TestSomethingElseAtTheGuardsKey(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	g := newGuard(t, rdb)
	for _, there := range []string{"", "nine", "9.5", "-9", "9 ", "1.7953966893557e+15"} {
		require.NoError(t, rdb.Set(ctx, "locker:guard:{report}", there, 0).Err())
		err := g.Set(ctx, "report", 1795396689355718, "late", 0)
		require.ErrorContains(t, err, "the key of the guard has something else")
		require.NotErrorIs(t, err, fence.ErrStale)
	}
	require.NoError(t, rdb.Del(ctx, "locker:guard:{report}").Err())
	require.NoError(t, rdb.LPush(ctx, "locker:guard:{report}", "x").Err())
	require.ErrorContains(t, g.Set(ctx, "report", 9, "late", 0), "WRONGTYPE")
	require.Zero(t, rdb.Exists(ctx, "report").Val())
}

// A value does not get to where another key's greatest token, or a lock's counter, stands.
func TestSetLeavesGuardsAlone(t *testing.T) {
	t.Parallel()
	ctx, rdb := t.Context(), redistest.Start(t).Client(t)
	for prefix, g := range map[string]*redisfence.Guard{
		"locker:guard:": newGuard(t, rdb), "app:": newGuard(t, rdb, redisfence.WithPrefix("app:")),
	} {
		require.NoError(t, g.Admit(ctx, "report", 9))
		require.ErrorIs(t, g.Set(ctx, prefix+"{report}", 1, "1", 0), fence.ErrInvalid)
		require.ErrorIs(t, g.Admit(ctx, "report", 8), fence.ErrStale)
		require.ErrorIs(t, g.Set(ctx, "locker:fence:{report}", 1, "1", 0), fence.ErrInvalid)
	}
	require.ErrorIs(t, new(redisfence.Guard).Set(ctx, "report", 9, "x", 0), fence.ErrInvalid)
}

// unanswered loses the reply of a script: it was run, and the client hears nothing.
type unanswered struct{ left int }

func (u *unanswered) DialHook(next redis.DialHook) redis.DialHook { return next }
func (u *unanswered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

var errNoReply = errors.New("the connection broke before the reply")

func (u *unanswered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && u.left > 0 {
			u.left--
			cmd.SetErr(errNoReply)
			return errNoReply
		}
		return err
	}
}

func TestReplyLost(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	rdb, deaf := server.Client(t), server.Client(t)
	deaf.AddHook(&unanswered{left: 2})
	first, second := newGuard(t, deaf), newGuard(t, rdb)

	err := first.Set(ctx, "report", 9, "nine", 0)
	require.ErrorIs(t, err, errNoReply)
	require.NotErrorIs(t, err, fence.ErrStale, "nobody knows whether it was applied")
	require.Equal(t, "nine", rdb.Get(ctx, "report").Val())
	require.ErrorIs(t, first.Set(ctx, "report", 9, "nine", 0), errNoReply)
	require.NoError(t, first.Set(ctx, "report", 9, "nine", 0), "sent again, it is admitted")

	require.NoError(t, second.Set(ctx, "report", 10, "ten", 0))
	require.ErrorIs(t, first.Set(ctx, "report", 9, "nine", 0), fence.ErrStale, "sent again after a later owner's, it is not")
	require.Equal(t, "ten", rdb.Get(ctx, "report").Val())
}

// A server that forgets its scripts, and one that restarts with its data.
func TestRestart(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t, redistest.WithAOF())
	rdb := server.Client(t)
	g := newGuard(t, rdb)
	require.NoError(t, g.Set(ctx, "report", 9, "nine", 0))
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	require.ErrorIs(t, g.Set(ctx, "report", 8, "late", 0), fence.ErrStale)
	server.Kill()
	server.Restart(t)
	require.ErrorIs(t, g.Set(ctx, "report", 8, "late", 0), fence.ErrStale)
	require.NoError(t, g.Set(ctx, "report", 9, "again", 0))
}

func TestRefusesNonsense(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	for name, opts := range map[string][]redisfence.Option{
		"want a prefix without braces, got \"a{\"":        {redisfence.WithPrefix("a{")},
		"want a prefix without braces, got \"\"":          {redisfence.WithPrefix("")},
		"want a retention of an hour or more, got 59m59s": {redisfence.WithRetention(time.Hour - time.Second)},
		"want a retention of an hour or more, got 0s":     {redisfence.WithRetention(0)},
		"want an Option, got nil":                         {nil},
	} {
		_, err := redisfence.New(rdb, opts...)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for _, none := range []redis.UniversalClient{nil, ring} {
		_, err := redisfence.New(none)
		require.ErrorContains(t, err, fmt.Sprintf("got %T", none))
	}
	g := newGuard(t, rdb)
	require.ErrorIs(t, g.Set(t.Context(), "report", 9, "x", -1), fence.ErrInvalid)
	require.ErrorIs(t, g.Set(t.Context(), "report", 9, "x", time.Microsecond), fence.ErrInvalid)
	_, err := g.Run(t.Context(), nil, "report", 9, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
	require.ErrorIs(t, new(redisfence.Guard).Admit(t.Context(), "report", 9), fence.ErrInvalid)
}
