package hashreentrant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// javaLock is a Redisson RLock as seen on the wire: what one Java thread sends.
type javaLock struct {
	rdb   *redis.Client
	name  string
	field string // <uuid>:<thread id>
}

const leaseMS = 30_000

var (
	javaAcquire = redis.NewScript(`
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`)
	javaUnlock = redis.NewScript(`
		local done = redis.call('get', KEYS[3])
		if done then return tonumber(done) end
		if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
		local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
		if left > 0 then
			redis.call('pexpire', KEYS[1], ARGV[2])
			redis.call('set', KEYS[3], 0, 'px', ARGV[5])
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call(ARGV[4], KEYS[2], ARGV[1])
		redis.call('set', KEYS[3], 1, 'px', ARGV[5])
		return 1`)
	javaRenew = redis.NewScript(`
		if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 1
		end
		return 0`)
)

func (j *javaLock) channel() string { return "redisson_lock__channel:{" + j.name + "}" }

// tryLock returns 0 when acquired, else what is left of the holder's lease in ms.
func (j *javaLock) tryLock(t *testing.T) int64 {
	t.Helper()
	left, err := javaAcquire.Run(context.Background(), j.rdb, []string{j.name}, leaseMS, j.field).Int64()
	if err == redis.Nil {
		return 0
	}
	require.NoError(t, err)
	require.Positive(t, left, "Java waits for ever on a lock without TTL")
	return left
}

// unlock returns 1 when freed, 0 when a hold remains, -1 when it was not held.
func (j *javaLock) unlock(t *testing.T) int64 {
	t.Helper()
	ctx := context.Background()
	latch := fmt.Sprintf("redisson_unlock_latch:{%s}:%032x", j.name, time.Now().UnixNano())
	n, err := javaUnlock.Run(ctx, j.rdb, []string{j.name, j.channel(), latch}, "0", leaseMS, j.field, "PUBLISH", 20_000).Int64()
	if err == redis.Nil {
		return -1
	}
	require.NoError(t, err)
	require.NoError(t, j.rdb.Del(ctx, latch).Err())
	return n
}

func peers(t *testing.T) (*javaLock, locker.Locker) {
	t.Helper()
	rdb := redistest.Shared(t).Client(t)
	l, err := hashreentrant.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return &javaLock{rdb: rdb, name: t.Name(), field: "6f1d2c3b-0000-4000-8000-0123456789ab:42"}, l
}

func TestJavaIsExcludedAndWoken(t *testing.T) {
	java, l := peers(t)
	ctx := t.Context()
	lease, err := l.Lock(ctx, java.name)
	require.NoError(t, err)
	inner, err := l.Lock(lease.Context(ctx), java.name)
	require.NoError(t, err)

	fields, err := java.rdb.HGetAll(ctx, java.name).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{lease.Owner(): "2"}, fields, "one field, the owner's count, as Redisson writes it")
	require.LessOrEqual(t, java.tryLock(t), int64(leaseMS))

	// A Java waiter subscribes, tries once more and sleeps until a message.
	sub := java.rdb.Subscribe(ctx, java.channel())
	defer sub.Close()
	_, err = sub.Receive(ctx)
	require.NoError(t, err)
	require.Positive(t, java.tryLock(t))

	require.NoError(t, inner.Unlock(ctx))
	require.Positive(t, java.tryLock(t), "one hold is left")
	require.NoError(t, lease.Unlock(ctx))
	msg, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "0", msg.Payload, "Redisson's UNLOCK message; its decoder takes nothing but numbers")
	require.Zero(t, java.tryLock(t))
	require.EqualValues(t, 1, java.unlock(t))
}

func TestJavaExcludesAndWakes(t *testing.T) {
	java, l := peers(t)
	ctx := t.Context()
	require.Zero(t, java.tryLock(t))
	require.Zero(t, java.tryLock(t), "re-entry")
	_, err := l.TryLock(ctx, java.name)
	require.ErrorIs(t, err, locker.ErrNotAcquired)

	granted := make(chan time.Time, 1)
	go func() {
		lease, err := l.Lock(ctx, java.name)
		if err != nil {
			t.Error(err)
			close(granted)
			return
		}
		at := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
		granted <- at
	}()
	// It has subscribed; polling would not show whether Java's message wakes it.
	require.Eventually(t, func() bool {
		n, err := java.rdb.PubSubNumSub(ctx, java.channel()).Result()
		return err == nil && n[java.channel()] == 1
	}, 5*time.Second, time.Millisecond)

	require.Zero(t, java.unlock(t), "one hold is left")
	n, err := javaRenew.Run(ctx, java.rdb, []string{java.name}, leaseMS, java.field).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	select {
	case <-granted:
		t.Fatal("granted while Java holds")
	default:
	}
	freed := time.Now()
	require.EqualValues(t, 1, java.unlock(t))
	at, ok := <-granted
	require.True(t, ok)
	// Without the message the waiter would look after 0.8 s at the earliest.
	require.Less(t, at.Sub(freed), 500*time.Millisecond)
}

// A hash that Java left for a lock of another kind is held, even for an owner
// whose name is one of its fields.
func TestJavaReadWriteLockExcludes(t *testing.T) {
	java, l := peers(t)
	ctx := t.Context()
	require.NoError(t, java.rdb.HSet(ctx, java.name, "mode", "read", java.field, 1).Err())
	require.NoError(t, java.rdb.PExpire(ctx, java.name, time.Minute).Err())
	_, err := l.TryLock(locker.ContextWithOwner(ctx, "mode"), java.name)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	fields, err := java.rdb.HGetAll(ctx, java.name).Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"mode": "read", java.field: "1"}, fields)
}

// An explicit owner holds from two Lockers, as two processes would, and its hash
// shows who holds how often.
func TestExplicitOwnerAcrossLockers(t *testing.T) {
	java, a := peers(t)
	b, err := hashreentrant.New(java.rdb)
	require.NoError(t, err)
	defer b.Close()
	ctx := locker.ContextWithOwner(t.Context(), "alice")

	first, err := a.Lock(ctx, java.name)
	require.NoError(t, err)
	second, err := b.Lock(ctx, java.name)
	require.NoError(t, err)
	third, err := b.Lock(ctx, java.name)
	require.NoError(t, err)
	require.Equal(t, first.Token(), second.Token())
	require.Equal(t, first.Token(), third.Token())
	require.Equal(t, 2, third.Holds(), "of this process")

	fields, err := java.rdb.HGetAll(ctx, java.name).Result()
	require.NoError(t, err)
	require.Equal(t, "3", fields["alice"], "the owner's field is the total")
	require.Len(t, fields, 3, "and each claim has one beside it")
	require.Positive(t, java.tryLock(t))

	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, second.Unlock(ctx))
	require.Positive(t, java.tryLock(t), "one hold is left")
	require.NoError(t, third.Unlock(ctx))
	require.Zero(t, java.tryLock(t))
	require.EqualValues(t, 1, java.unlock(t))
}

// A process that is handed the name another one got by itself shares its lock.
func TestOwnerHandedOver(t *testing.T) {
	java, a := peers(t)
	b, err := hashreentrant.New(java.rdb)
	require.NoError(t, err)
	defer b.Close()
	ctx := t.Context()

	first, err := a.Lock(ctx, java.name)
	require.NoError(t, err)
	second, err := b.Lock(locker.ContextWithOwner(ctx, first.Owner()), java.name)
	require.NoError(t, err)
	require.NoError(t, first.Unlock(ctx))
	require.Positive(t, java.tryLock(t), "the second still holds")
	require.NoError(t, second.Unlock(ctx))
	require.Zero(t, java.tryLock(t))
	require.EqualValues(t, 1, java.unlock(t))
}

// A Redisson that does not use sharded pub/sub is woken on a cluster if it is told so, and
// by default one that does; and so are we.
func TestPubSubOnACluster(t *testing.T) {
	srv := redistest.StartClusterOfOne(t)
	node := srv.Client(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer rdb.Close()
	const channel = "redisson_lock__channel:{k}"
	for publish, opts := range map[string][]locker.Option{
		"PUBLISH":  {hashreentrant.WithShardedPubSub(false)},
		"SPUBLISH": {hashreentrant.WithShardedPubSub(true)},
	} {
		if publish == "SPUBLISH" && !redistest.AtLeast(7, 0) {
			continue // it has no sharded pub/sub
		}
		l, err := hashreentrant.New(rdb, opts...)
		require.NoError(t, err)
		heard := node.Subscribe(t.Context())
		if publish == "PUBLISH" {
			require.NoError(t, heard.Subscribe(t.Context(), channel))
		} else {
			require.NoError(t, heard.SSubscribe(t.Context(), channel))
		}
		_, err = heard.Receive(t.Context())
		require.NoError(t, err)
		lease, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		msg, err := heard.ReceiveTimeout(t.Context(), 5*time.Second)
		require.NoError(t, err, publish)
		require.Equal(t, "0", msg.(*redis.Message).Payload)
		require.NoError(t, heard.Close())
		require.NoError(t, l.Close())
	}
}
