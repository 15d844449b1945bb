package blpop

import (
	"testing"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A user who may not set when keys end leaves neither a lock nor a queue that stays for ever,
// and ends no queue of others.
func TestWaitingWithoutPermissionToExpire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	srv.AddUser(t, "bob", "pw", "~*", "&*", "+@all", "-pexpire")
	o := srv.Options()
	o.Username, o.Password = "bob", "pw"
	rdb := redis.NewClient(o)
	defer rdb.Close()
	bob := newPlace(t, rdb)
	fails := func() {
		id := bob.inboxes.id + ":1"
		req := driver.Request{Claim: driver.Claim{Key: "k", ID: id, Owner: id, TTL: bob.ttl}, Wait: true}
		_, err := bob.AcquireWith(ctx, req, bob.inboxes.name("k"), 1, 1, "")
		require.Regexp(t, "can't run this command|has no permissions", err.Error())
	}
	fails()
	require.Zero(t, admin.Exists(ctx, "k", queueOfK).Val(), "the lock is free")
	holder := hold(t, admin)
	fails()
	require.Zero(t, admin.Exists(ctx, queueOfK).Val(), "the first that waits")
	other := takePlace(t, admin)
	fails()
	require.Positive(t, admin.PTTL(ctx, queueOfK).Val(), "others wait, too")
	require.NoError(t, holder.gives())
	require.True(t, other.wasGranted())
}
