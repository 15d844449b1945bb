package newest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/test/redistest"
)

func TestTheGreatestTokenStays(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	get := func() string {
		v, ok, err := Get(t.Context(), rdb, "k")
		require.NoError(t, err)
		require.True(t, ok)
		return string(v.Data)
	}
	put := func(token int64, data string) {
		require.NoError(t, Put(t.Context(), rdb, "k", token, []byte(data), time.Minute))
	}
	_, ok, err := Get(t.Context(), rdb, "k")
	require.NoError(t, err)
	require.False(t, ok)
	put(9, "nine")
	put(10, "ten and more") // as text, 10 is less than 9
	require.Equal(t, "ten and more", get())
	put(9, "late")
	require.Equal(t, "ten and more", get())
	put(10, "again")
	require.Equal(t, "again", get())
	put(1<<53-1, "")
	put(1<<53-2, "late")
	require.Empty(t, get())
}

// An answer that is stored has an end, also where the user may not set one later.
func TestAValueEnds(t *testing.T) {
	srv := redistest.Start(t)
	srv.AddUser(t, "app", "secret", "~*", "+eval", "+evalsha", "+get", "+getrange", "+set", "+pttl")
	o := srv.Options()
	o.Username, o.Password = "app", "secret"
	rdb := client(t, o)
	require.NoError(t, Put(t.Context(), rdb, "k", 1, []byte("v"), 50*time.Millisecond))
	v, ok, err := Get(t.Context(), rdb, "k")
	require.NoError(t, err)
	if ok { // a busy machine may be late
		require.LessOrEqual(t, v.Left, 50*time.Millisecond)
	}
	require.Eventually(t, func() bool {
		_, ok, err := Get(t.Context(), rdb, "k")
		return err == nil && !ok
	}, 5*time.Second, time.Millisecond)
}

func TestWhatAnotherProgramWroteStays(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for _, text := range []string{"text", "12", " 1", "{}", "12 apples", "token:12", "token: 12"} {
		require.NoError(t, rdb.Set(t.Context(), "k", text, 0).Err())
		require.ErrorContains(t, Put(t.Context(), rdb, "k", 5, []byte("v"), time.Minute), "another program")
		require.Equal(t, text, rdb.Get(t.Context(), "k").Val())
		_, _, err := Get(t.Context(), rdb, "k")
		require.Error(t, err)
	}
	require.NoError(t, rdb.Del(t.Context(), "k").Err())
	require.NoError(t, rdb.HSet(t.Context(), "k", "f", "v").Err())
	require.ErrorContains(t, Put(t.Context(), rdb, "k", 5, []byte("v"), time.Minute), "WRONGTYPE")
}

func client(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
