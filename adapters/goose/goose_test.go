package gooselocker_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	gooselocker "github.com/distlock/locker/adapters/goose"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/sqlservers"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
)

var running *sqlservers.Server

var server = sync.OnceValues(func() (s *sqlservers.Server, err error) {
	if s, err = sqlservers.Postgres(); err == nil {
		running = s
	}
	return s, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		running.Stop()
	}
	os.Exit(code)
}

var schemas atomic.Int32

// open returns a database of the test's own: a schema.
func open(t *testing.T) *sql.DB {
	t.Helper()
	if sqlservers.LeftOut("postgres") {
		t.Skip("PostgreSQL is left out")
	}
	s, err := server()
	require.NoError(t, err)
	db, err := sql.Open(s.Driver, s.DSN)
	require.NoError(t, err)
	defer db.Close()
	name := fmt.Sprint("test_", schemas.Add(1))
	_, err = db.ExecContext(t.Context(), "CREATE SCHEMA "+name)
	require.NoError(t, err)
	own, err := sql.Open(s.Driver, s.DSN+"&search_path="+name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	return own
}

func newLock(t *testing.T, l locker.Locker, opts ...gooselocker.Option) *gooselocker.Locker {
	t.Helper()
	k, err := gooselocker.New(l, t.Name(), opts...)
	require.NoError(t, err)
	return k
}

func onRedis(t *testing.T) locker.Locker {
	t.Helper()
	l, err := hashreentrant.New(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// goose's own tests of a locker: of five providers one applies all migrations.
func TestProviders(t *testing.T) {
	for name, option := range map[string]func(*gooselocker.Locker) goose.ProviderOption{
		"locker":  func(k *gooselocker.Locker) goose.ProviderOption { return goose.WithLocker(k) },
		"session": func(k *gooselocker.Locker) goose.ProviderOption { return goose.WithSessionLocker(k) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, option(newLock(t, onRedis(t))))
				require.NoError(t, err)
				return p
			})
		})
	}
}

// goose's own test: of five lockers one gets the lock.
func TestConcurrent(t *testing.T) {
	locktesting.TestConcurrentLocking(t, open(t), func(t *testing.T) lock.Locker { return newLock(t, onRedis(t)) }, time.Second)
}

// The program of README.md, run by two instances at the same time.
func TestReadme(t *testing.T) {
	docblocks.InFile(t, "README.md", "example_test.go")
	db, rdb := open(t), redistest.Shared(t).Client(t)
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- migrate(t.Context(), rdb, db) }()
	}
	for range 2 {
		require.NoError(t, <-ended)
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO orders VALUES (1, 'new', true)")
	require.NoError(t, err)
}

// A migration whose lock is lost is rolled back, and goose returns the loss.
func TestLoss(t *testing.T) {
	db, store := open(t), memory.NewStore()
	l, err := store.New(locker.WithTTL(300 * time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	k := newLock(t, l)
	slow := fstest.MapFS{"00001_slow.sql": {Data: []byte("-- +goose Up\nCREATE TABLE slow (id INT);\nSELECT pg_sleep(60);\n")}}
	p, err := goose.NewProvider(goose.DialectPostgres, db, slow, goose.WithLocker(k))
	require.NoError(t, err)
	ctx, stop := k.Context(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Up(ctx)
		ended <- err
	}()
	require.Eventually(t, func() bool { return store.Break(t.Name()) }, 30*time.Second, time.Millisecond)
	err = <-ended
	require.ErrorIs(t, err, locker.ErrLost)
	require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
	_, err = db.ExecContext(t.Context(), "SELECT * FROM slow")
	require.Error(t, err, "the migration was rolled back")
}

// A run after a loss does not have its lock taken away by the end of the run before.
func TestUnlockAfterALoss(t *testing.T) {
	store := memory.NewStore()
	l, err := store.New(locker.WithTTL(100 * time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	k := newLock(t, l)
	ctx, stop := k.Context(t.Context())
	require.NoError(t, k.Lock(t.Context(), nil))
	require.True(t, store.Break(t.Name()))
	<-ctx.Done()
	stop()
	ctx, stop = k.Context(t.Context())
	defer stop()
	require.NoError(t, k.Lock(t.Context(), nil))
	require.ErrorIs(t, k.Unlock(t.Context(), nil), locker.ErrLost)
	require.NotEmpty(t, store.Keys())
	require.NoError(t, k.Unlock(t.Context(), nil))
	require.Empty(t, store.Keys())
	require.NoError(t, ctx.Err(), "an Unlock is no loss")
	require.ErrorIs(t, k.Unlock(t.Context(), nil), locker.ErrNotHeld)
}

func TestMisuse(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	for name, opts := range map[string][]gooselocker.Option{
		"nil": {nil}, "TTL": {gooselocker.WithLockOptions(locker.WithTTL(0))},
	} {
		_, err := gooselocker.New(l, "k", opts...)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = gooselocker.New(nil, "k")
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = gooselocker.New(l, "")
	require.ErrorIs(t, err, locker.ErrInvalid)
}

// Instances whose contexts name the same owner migrate one after the other, too.
func TestNamedOwner(t *testing.T) {
	store := memory.NewStore()
	l, err := store.New()
	require.NoError(t, err)
	defer l.Close()
	a, b := newLock(t, l), newLock(t, l, gooselocker.WithLockOptions(locker.WithWait(0)))
	ctx := locker.ContextWithOwner(t.Context(), "billing")
	require.NoError(t, a.Lock(ctx, nil))
	require.ErrorIs(t, b.Lock(ctx, nil), locker.ErrNotAcquired)
	require.NoError(t, a.Unlock(ctx, nil))
}
