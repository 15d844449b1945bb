package members_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

func TestMain(m *testing.M) { os.Exit(members.Tests{M: m}.Run()) }

// faultTTL leaves time for an election, which takes a second or two.
const faultTTL = 5 * time.Second

// cluster is three members.
type cluster struct {
	t       *testing.T
	members []*members.Server
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	all, err := members.Launch(3)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, s := range all {
			s.Thaw()
		}
		members.StopAll(all)
	})
	return &cluster{t, all}
}

// locker is a Locker on a client as strategy/etcd/register makes it.
func (c *cluster) locker(to ...*members.Server) *locker.Client {
	c.t.Helper()
	cfg := clientv3.Config{Logger: zap.NewNop(), DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second}
	for _, s := range to {
		cfg.Endpoints = append(cfg.Endpoints, s.Endpoint())
	}
	client, err := clientv3.New(cfg)
	require.NoError(c.t, err)
	l, err := etcd.New(client)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		_ = l.Close()
		_ = client.Close()
	})
	return l
}

func (c *cluster) client() *clientv3.Client {
	c.t.Helper()
	client, err := members.Dial(c.members...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// leader is the member that leads; the others are in the order of their names.
func (c *cluster) leader() (leader *members.Server, others []*members.Server) {
	c.t.Helper()
	client := c.client()
	for leader == nil {
		for _, s := range c.members {
			status, err := client.Status(c.t.Context(), s.Endpoint())
			require.NoError(c.t, err)
			if status.Leader == status.Header.MemberId {
				leader = s
			}
		}
	}
	return leader, slices.DeleteFunc(slices.Clone(c.members), func(s *members.Server) bool { return s == leader })
}

// survives has a lock held and waited for, and others taken, while fault happens and for d after it, and until
// mend has undone it. The lock is held throughout, tokens grow, and the waiter gets its turn.
func (c *cluster) survives(d time.Duration, fault, mend func()) {
	t := c.t
	t.Helper()
	a, b, probe := c.locker(c.members...), c.locker(c.members...), c.locker(c.members...)
	held, err := a.Lock(t.Context(), "held", locker.WithTTL(faultTTL))
	require.NoError(t, err)
	type grant struct {
		lease *locker.Lease
		err   error
	}
	granted := make(chan grant, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	go func() {
		lease, err := b.Lock(ctx, "held", locker.WithTTL(faultTTL))
		granted <- grant{lease, err}
	}()

	fault()
	var last int64
	taken, failed, begun := 0, 0, time.Now()
	for time.Since(begun) < d || taken == 0 {
		lease, err := probe.Lock(ctx, "free", locker.WithTTL(faultTTL), locker.WithWait(4*time.Second))
		if err != nil {
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.NoError(t, ctx.Err(), "no lock is granted any more")
			failed++
			continue
		}
		require.Greater(t, lease.Token(), last)
		last = lease.Token()
		taken++
		if err := lease.Unlock(ctx); err != nil { // its TTL frees the key
			require.ErrorIs(t, err, locker.ErrUnavailable)
			failed++
		}
		if _, err := b.TryLock(ctx, "held"); err == nil {
			t.Fatal("a lock that is held is granted")
		}
	}
	require.NoError(t, held.Err(), "the lock was lost")
	mend()
	t.Logf("%d locks taken beside the fault, %d calls failed", taken, failed)
	require.NoError(t, held.Unlock(ctx))
	select {
	case next := <-granted:
		require.NoError(t, next.err)
		require.Greater(t, next.lease.Token(), held.Token())
		require.NoError(t, next.lease.Unlock(ctx))
	case <-ctx.Done():
		t.Fatal("the waiter is not granted the lock that was given back")
	}
}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	leader, _ := c.leader()
	c.survives(2*faultTTL, leader.Kill, func() { require.NoError(t, leader.Start()) })
}

// A leader that stood still for ten TTLs believes for a moment that it leads.
func TestLeaderFrozen(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten TTLs")
	}
	c := newCluster(t)
	leader, _ := c.leader()
	c.survives(10*faultTTL, leader.Freeze, leader.Thaw)
}

// A leader that goes on after it stood still for longer than a lease has all leases on its list of those that have
// ended, and hands it on to its successor over the next seconds: those that were kept alive there meanwhile
// end (see lease in package etcd). Locks are held on.
func TestLeaderThawed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes three TTLs")
	}
	const many, seconds = 60, 6
	c := newCluster(t)
	leader, others := c.leader()
	client, err := members.Dial(others...)
	require.NoError(t, err)
	defer client.Close()
	l := c.locker(others...)
	var locks []*locker.Lease
	var ended atomic.Int32
	for i := range many {
		lock, err := l.Lock(t.Context(), fmt.Sprint("many ", i), locker.WithTTL((seconds-1)*time.Second))
		require.NoError(t, err)
		locks = append(locks, lock)
		lease, err := client.Grant(t.Context(), seconds) // without our driver
		require.NoError(t, err)
		alive, err := client.KeepAlive(t.Context(), lease.ID)
		require.NoError(t, err)
		go func() {
			for range alive {
			}
			if t.Context().Err() == nil {
				ended.Add(1)
			}
		}()
	}
	leader.Freeze()
	time.Sleep((seconds + 2) * time.Second) // the fault: the leader stands still for longer than the lease
	leader.Thaw()
	held := func() {
		for _, lock := range locks {
			require.NoError(t, lock.Err())
		}
	}
	for end := time.Now().Add(9 * time.Second); time.Now().Before(end); { // within 9 s a leader that ends leases does so
		held()
		time.Sleep(50 * time.Millisecond) // no event shows that the leader ends none: the test has to look again
	}
	for _, lock := range locks { // what a holder believes is found in the store
		require.NoError(t, lock.Renew(t.Context()))
		require.NoError(t, lock.Unlock(t.Context()))
	}
	t.Logf("etcd has ended %d of %d leases that were kept alive", ended.Load(), many)
}

// replace removes a member from the list that the cluster keeps, and adds one at its address. The leader drops a change,
// without an answer, while it has not applied the change before. So a change without an answer is made again.
func (c *cluster) replace(client *clientv3.Client, lost *members.Server) {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		list, err := client.MemberList(ctx)
		require.NoError(t, err)
		old := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return m.Name == lost.Name })
		if old < 0 && len(list.Members) == len(c.members) {
			return
		}
		answer, cancel := context.WithTimeout(ctx, 5*time.Second)
		if old >= 0 {
			_, err = client.MemberRemove(answer, list.Members[old].ID)
		} else {
			_, err = client.MemberAdd(answer, []string{"unix://" + lost.Name + ":2"})
		}
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			t.Log("a change of the members had no answer")
		}
	}
}

func TestMemberWiped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, others := c.leader()
	lost, client := others[0], c.client()
	c.survives(faultTTL, func() {
		lost.Kill()
		require.NoError(t, lost.Wipe())
		c.replace(client, lost)
		lost.Existing = true
		require.NoError(t, lost.Start())
	}, func() {})
}

// The leader is cut off from the others, and a Locker with it that has no way to another member. It loses its
// lock by the Deadline, before another owner is granted it. One that has a way keeps its lock.
func TestMemberCutOff(t *testing.T) {
	t.Parallel()
	if members.Released() {
		t.Skip(members.ErrReleased)
	}
	c := newCluster(t)
	leader, others := c.leader()
	inside, outside := c.locker(leader), c.locker(others...)
	alone, err := inside.Lock(t.Context(), "alone", locker.WithTTL(faultTTL))
	require.NoError(t, err)
	c.survives(2*faultTTL, func() {
		require.NoError(t, leader.Tell("cut"))
		next, err := outside.Lock(t.Context(), "alone", locker.WithTTL(faultTTL))
		now := time.Now()
		require.NoError(t, err)
		require.True(t, alone.Deadline().Before(now), "granted %v before the Deadline of the holder", alone.Deadline().Sub(now))
		require.ErrorIs(t, alone.Err(), locker.ErrLost)
		require.Greater(t, next.Token(), alone.Token())
		_, err = inside.TryLock(t.Context(), "alone")
		require.Error(t, err)
		require.NoError(t, next.Unlock(t.Context()))
	}, func() { require.NoError(t, leader.Tell("mend")) })
	lease, err := inside.Lock(t.Context(), "alone", locker.WithWait(time.Minute))
	require.NoError(t, err)
	require.Greater(t, lease.Token(), alone.Token())
}

// A member without a leader refuses at once, and says why.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.locker(c.members[0])
	held, err := l.Lock(t.Context(), "held", locker.WithTTL(time.Minute))
	require.NoError(t, err)
	for _, s := range c.members[1:] {
		s.Freeze()
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := l.TryLock(ctx, "free")
		cancel()
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NoError(t, held.Err())
		if strings.Contains(err.Error(), "no leader") {
			break
		}
	}
	for _, s := range c.members[1:] {
		s.Thaw()
	}
	require.NoError(t, held.Unlock(t.Context()))
}
