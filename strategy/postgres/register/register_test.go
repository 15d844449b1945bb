package register_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/postgres/register"
)

// A server that does not answer is no reason to fail.
func TestOpen(t *testing.T) {
	for _, url := range []string{
		"postgres://app@/app?host=/nowhere&ttl=10s&table=app.locks&notify=off&pool_max_conns=2",
		"postgresql://app:secret@localhost:1/app",
		"postgres+postgresql://localhost:1/app?sslmode=disable",
		"postgres://",
	} {
		_, release, err := strategy.OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		release()
	}
	_, release, err := strategy.Open(t.Context(), strategy.Config{Strategy: "postgres"})
	require.NoError(t, err)
	release()
	require.Subset(t, strategy.Names(), []string{"postgres", "postgresql"})
}

func TestOpenRefuses(t *testing.T) {
	for url, word := range map[string]string{
		"postgres://app:secret@h/app?table=a.b.c":            "a.b.c",
		"postgres://app:secret@h/app?notify=perhaps":         "perhaps",
		"postgres://app:secret@h/app?sslmode=perhaps":        "sslmode",
		"postgres://app:secret@h/app?pool_max_conns=many":    `pool_max_conns (strconv.ParseInt: parsing "many"`,
		"postgres://app:secret@h/app?pool_max_conns=0":       "pool_max_conns too small",
		"postgres://app:secret@h/app?pool_min_conns=x":       "pool_min_conns",
		"postgres://app:secret@h/app?port=99999999":          "invalid port",
		"postgres://app:secret@h/app?connect_timeout=x":      "connect_timeout",
		"postgres://app:secret@h/app?channel_binding=x":      "unknown channel_binding value: x",
		"postgres://app:secret@h/app?target_session_attrs=x": "unknown target_session_attrs value: x",
		"postgres://app:secret@h/app?sslrootcert=/nowhere":   "TLS",
		"postgres://app:secret@h/app?replica_acks=1":         "replica_acks",
		"postgres+redis://app:secret@h/app":                  "url",
		"postgres://app:secret@h/app?ttl=1ms":                "ttl",
	} {
		_, _, err := strategy.OpenURL(t.Context(), url)
		require.ErrorIs(t, err, locker.ErrInvalid, url)
		require.ErrorContains(t, err, word)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "nil")
	}
}
