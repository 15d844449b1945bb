package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/fencetest"
)

// inMemory is a map whose writes a Memory admits.
type inMemory struct {
	*fence.Memory
	values map[string]string
}

func (r inMemory) Write(ctx context.Context, key string, token int64, value string) error {
	return r.Do(ctx, key, token, func() error {
		r.values[key] = value
		return nil
	})
}

func (r inMemory) Read(ctx context.Context, key string) (string, error) { return r.values[key], nil }

func TestMemory(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(testing.TB) fence.Guard { return inMemory{fence.NewMemory(), make(map[string]string)} })
}

func TestMemoryAdmitsNothingAfterTheContext(t *testing.T) {
	t.Parallel()
	why := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	m := fence.NewMemory()
	require.ErrorIs(t, m.Admit(ctx, "lamp", 9), why)
	require.NoError(t, m.Admit(t.Context(), "lamp", 8))
}

func TestZeroMemory(t *testing.T) {
	t.Parallel()
	var m fence.Memory
	require.NoError(t, m.Admit(t.Context(), "lamp", 9))
	require.ErrorIs(t, m.Admit(t.Context(), "lamp", 8), fence.ErrStale)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	m := fence.NewMemory()
	require.NoError(t, m.Admit(t.Context(), "lamp", 9))
	err := m.Admit(t.Context(), "lamp", 8)
	require.EqualError(t, err, `fence: key "lamp": stale fencing token: got 8, and 9 was admitted before: a later owner was here`)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fence.StaleError{Key: "lamp", Token: 8, Seen: 9}, *stale)
	require.EqualError(t, &fence.StaleError{Key: "lamp", Token: 8},
		`fence: key "lamp": stale fencing token: got 8, and a greater one was admitted before: a later owner was here`)
	require.EqualError(t, m.Admit(t.Context(), "lamp", 0),
		`fence: key "lamp": invalid use: want a fencing token of 1 or more, got 0; take it from Lease.Token, of a Locker without WithoutFencing`)
	require.EqualError(t, m.Admit(t.Context(), "", 9), "fence: invalid use: want a key of 1 to 16384 bytes, got 0")
	require.Less(t, len(m.Admit(t.Context(), strings.Repeat("x", fence.MaxKey), -1).Error()), 300)
}
