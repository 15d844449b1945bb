package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/postgres"
)

func newLocker(tb testing.TB, pool *pgxpool.Pool, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := postgres.New(pool, opts...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Close()) })
	return l
}

// waiting is closed, in effect, by the first Lock that waits.
type waiting struct {
	c    chan struct{}
	once sync.Once
}

func newWaiting() *waiting { return &waiting{c: make(chan struct{})} }

func (w *waiting) Observe(_ context.Context, e locker.Event) {
	if e.Kind == locker.EventWaiting {
		w.once.Do(func() { close(w.c) })
	}
}

// Many connections find the table missing at the same time.
func TestTableIsCreatedOnce(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	const n = 16
	start := make(chan struct{})
	errs := make(chan error, n)
	for i := range n {
		pool := s.pool(t, "")
		require.NoError(t, pool.Ping(ctx))
		l := newLocker(t, pool, locker.WithTTL(time.Minute))
		go func() {
			<-start
			lease, err := l.TryLock(ctx, fmt.Sprint(i))
			if err == nil {
				err = lease.Unlock(ctx)
			}
			errs <- err
		}()
	}
	close(start)
	for range n {
		require.NoError(t, <-errs)
	}
}

// The same from processes, which are this test with the URL in their environment.
func TestTableIsCreatedByProcesses(t *testing.T) {
	t.Parallel()
	const env = "LOCKER_POSTGRES_URL"
	if url := os.Getenv(env); url != "" {
		_, err := newLocker(t, newPool(t, url)).TryLock(t.Context(), fmt.Sprint(os.Getpid()))
		require.NoError(t, err)
		return
	}
	s := startServer(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), env+"="+s.url("app", "app"))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
	all.Wait()
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	a, b := newLocker(t, s.pool(t, "")), newLocker(t, s.pool(t, ""))
	long := strings.Repeat("k", locker.MaxKeyLen)
	keys := []string{"\x00", "a\x00b", "a\x00", "a", `\x61`, "'", "$1", long, long[1:] + "l", "ключ", "%"}
	for _, key := range keys {
		_, err := a.TryLock(ctx, key)
		require.NoError(t, err)
		_, err = b.TryLock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired)
	}
	var told []string
	for h, err := range b.(*locker.Client).Holders(ctx, "*") {
		require.NoError(t, err)
		told = append(told, h.Key)
	}
	require.ElementsMatch(t, keys, told)
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	require.NoError(t, s.admin(ctx, `CREATE ROLE weak LOGIN`))
	require.NoError(t, s.admin(ctx, `REVOKE CREATE ON SCHEMA public FROM public`))
	pool := newPool(t, s.url("weak", "app"))
	weak := newLocker(t, pool)

	start := time.Now()
	_, err := weak.Lock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, `"public"."locker_locks" does not exist`)
	require.ErrorContains(t, err, "permission denied for schema public")
	require.ErrorContains(t, err, "postgres.Schema")
	require.Less(t, time.Since(start), 5*time.Second, "that is not ridden out")

	_, err = newLocker(t, pool, postgres.WithTable("nowhere.locks")).Lock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, `schema "nowhere" does not exist`)

	schema, err := postgres.Schema("public.locker_locks")
	require.NoError(t, err)
	for range 2 {
		conn, err := s.connect(ctx, "postgres", "app")
		require.NoError(t, err)
		_, err = conn.PgConn().Exec(ctx, schema).ReadAll()
		require.NoError(t, err)
		require.NoError(t, conn.Close(ctx))
	}
	_, err = weak.Lock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "permission denied for table locker_locks")

	require.NoError(t, s.admin(ctx, `GRANT SELECT, INSERT, UPDATE, DELETE ON public.locker_locks TO weak`))
	lease, err := weak.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(ctx))
	require.NoError(t, lease.Unlock(ctx))
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	pool := s.pool(t, "")
	_, err := postgres.New(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	for _, name := range []string{"", "a.b.c", ".", "a\x00", strings.Repeat("x", 64)} {
		_, err := postgres.New(pool, postgres.WithTable(name))
		require.ErrorIs(t, err, locker.ErrInvalid, name)
		_, err = postgres.Schema(name)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = postgres.New(pool, locker.WithDriverOption(1))
	require.ErrorIs(t, err, locker.ErrInvalid)

	for _, name := range []string{"locks", "public.locks", `public.it's "mine"`} {
		l := newLocker(t, pool, postgres.WithTable(name))
		lease, err := l.TryLock(ctx, "k "+name)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
	}
	var n int
	require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM public.locks`).Scan(&n))
	require.Equal(t, 2, n, "locks is public.locks here")
}

// Old rows are deleted by releases; those in use and those of applications are not.
func TestOldRowsAreForgotten(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	pool := s.pool(t, "")
	l := newLocker(t, pool)
	cycle := func(key string) int64 {
		lease, err := l.Lock(ctx, key)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		return lease.Token()
	}
	last := int64(0)
	for i := range 20 {
		last = cycle(fmt.Sprint(i))
	}
	held, err := l.Lock(ctx, "held")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, `UPDATE public.locker_locks SET forget = now() - interval '1 min'`)
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `SELECT FROM public.locker_locks WHERE key = '0' FOR UPDATE`)
	require.NoError(t, err)
	for range 16 { // one of them sweeps
		cycle("fresh")
	}
	rows, err := pool.Query(ctx, `SELECT convert_from(key, 'UTF8') FROM public.locker_locks`)
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"0", "held", "fresh"}, keys)
	require.NoError(t, held.Unlock(ctx))
	require.Greater(t, cycle("19"), last, "the clock goes on where the row was")
}

func Example() {
	server, err := launch() // yours is there already
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()

	ctx := context.Background()
	pool, err := pgxpool.New(ctx, server.url("app", "app"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	l, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	lease, err := l.Lock(ctx, "orders/42", locker.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	_, err = l.TryLock(ctx, "orders/42")
	fmt.Println("taken:", errors.Is(err, locker.ErrNotAcquired))
	fmt.Println("unlocked:", lease.Unlock(ctx))
	// Output:
	// taken: true
	// unlocked: <nil>
}
