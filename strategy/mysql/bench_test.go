package mysql_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
)

// status returns a counter of the server.
func (s *server) status(tb testing.TB, name string) float64 {
	tb.Helper()
	var value string
	require.NoError(tb, s.root.QueryRowContext(context.Background(), `SHOW GLOBAL STATUS WHERE Variable_name = ?`, name).Scan(&name, &value))
	n, err := strconv.ParseFloat(value, 64)
	require.NoError(tb, err)
	return n
}

// BenchmarkPair is a Lock and an Unlock of a free key.
func BenchmarkPair(b *testing.B) {
	s, ctx := startServer(b), context.Background()
	l := newLocker(b, s.pool(b, 4, ""))
	pair := func() {
		lease, err := l.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		require.NoError(b, err)
	}
	pair()
	before, logged := s.status(b, "Questions"), s.status(b, "Innodb_os_log_written")
	for b.Loop() {
		pair()
	}
	b.ReportMetric((s.status(b, "Questions")-before-1)/float64(b.N), "statements/op")
	b.ReportMetric((s.status(b, "Innodb_os_log_written")-logged)/float64(b.N), "log-bytes/op")
}

// BenchmarkHeld is a second of 2,000 held locks of 6 s, which are renewed every 2 s.
func BenchmarkHeld(b *testing.B) {
	const locks = 2000
	s, ctx := startServer(b), context.Background()
	l := newLocker(b, s.pool(b, 16, ""), locker.WithTTL(6*time.Second))
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			_, err := l.Lock(ctx, fmt.Sprint(i))
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	before, logged := s.status(b, "Questions"), s.status(b, "Innodb_os_log_written")
	for b.Loop() {
		time.Sleep(time.Second) // renewals are measured, which come by the clock
	}
	renewals := float64(b.N) * locks / 2
	b.ReportMetric((s.status(b, "Questions")-before-1)/renewals, "statements/renewal")
	b.ReportMetric((s.status(b, "Innodb_os_log_written")-logged)/renewals, "log-bytes/renewal")
}
