package postgres_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/postgres"
)

type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Attempts that have become much slower are logged, once; one that is slow by itself is not.
func TestSlowAttemptsAreToldOf(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	var log logged
	l, err := postgres.New(s.pool(t, ""), locker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), locker.WithTTL(time.Hour))
	require.NoError(t, err)
	n := 0
	use := func(times int) {
		for range times {
			n++
			_, err := l.TryLock(ctx, fmt.Sprint(n))
			require.NoError(t, err)
		}
	}
	slow := func(seconds string) {
		require.NoError(t, s.admin(ctx, `CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_sleep(`+seconds+`); RETURN new; END $$`))
		require.NoError(t, s.admin(ctx, `DROP TRIGGER IF EXISTS slow ON `+table)) // PostgreSQL 13 replaces none
		require.NoError(t, s.admin(ctx, `CREATE TRIGGER slow BEFORE INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION slow()`))
	}
	began := time.Now()
	use(3 * 32)
	usual := time.Since(began) / (3 * 32) // on this machine, as busy as it is
	slow("0.5")
	use(1)
	slow("0")
	use(31)
	slow(fmt.Sprint(max(100*time.Millisecond, 20*usual).Seconds()))
	use(2 * 32)
	require.NoError(t, l.Close()) // every line is written
	require.Equal(t, 1, strings.Count(log.text.String(), "backend_xmin"), log.text.String())
}
