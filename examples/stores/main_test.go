package main

import (
	"testing"

	"github.com/distlock/locker/strategy"
	"github.com/stretchr/testify/require"
)

// Each file is a configuration of a strategy that this program has registered.
func TestConfigurations(t *testing.T) {
	for file, url := range map[string]struct{ name, url string }{
		"redis.yaml":    {"REDIS_URL", "blpop+redis://localhost:6379"},
		"postgres.yaml": {"POSTGRES_URL", "postgres://localhost/shop"},
		"mysql.yaml":    {"MYSQL_URL", "mysql://root@localhost:3306/shop"},
		"etcd.yaml":     {"ETCD_URL", "etcd://localhost:2379"},
	} {
		t.Setenv(url.name, url.url)
		cfg, err := strategy.Load(file)
		require.NoError(t, err, file)
		l, release, err := strategy.Open(t.Context(), cfg)
		require.NoError(t, err, file)
		require.NotNil(t, l)
		release()
	}
}
