package strategy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

// lockTaken locks a key that is taken, by a Locker made of cfg.
func lockTaken(t *testing.T, cfg Config) error {
	t.Helper()
	name := "memory://" + strings.ReplaceAll(t.Name(), "/", "-")
	holder, _ := open(t, name)
	lease, err := holder.Lock(t.Context(), "k")
	require.NoError(t, err)
	defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
	cfg.URL = name + cfg.URL
	l, release, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = l.Lock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	return err
}

func TestWaitLeftOutWaitsUntilTheContextIsDone(t *testing.T) {
	require.ErrorIs(t, lockTaken(t, Config{}), context.DeadlineExceeded)
}

func TestWaitOfZeroIsOneAttempt(t *testing.T) {
	yaml, err := ParseYAML([]byte("wait: 0s"))
	require.NoError(t, err)
	json, err := ParseJSON([]byte(`{"wait": "0s"}`))
	require.NoError(t, err)
	for name, cfg := range map[string]Config{"field": {Wait: NoWait}, "parameter": {URL: "?wait=0s"}, "yaml": yaml, "json": json} {
		t.Run(name, func(t *testing.T) {
			require.NotErrorIs(t, lockTaken(t, cfg), context.DeadlineExceeded)
		})
	}
}

func TestWaitOfZeroIsShown(t *testing.T) {
	require.JSONEq(t, `{"wait":"0s"}`, Config{Wait: NoWait}.String())
	require.JSONEq(t, `{"wait":"5s"}`, Config{Wait: 5 * time.Second}.String())
	require.Equal(t, `{}`, Config{}.String())
}
