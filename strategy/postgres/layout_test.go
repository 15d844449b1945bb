package postgres_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/permitstest"
)

// oldToken is the last token of each key in testdata/layout-1.sql. It is ahead of the clock, so that only last_token
// makes greater ones.
const oldToken = int64(1_900_000_000_000_000)

// storeLayout stores what testdata/layout-1.sql lists. The role app does so, since it owns the tables that it makes.
func storeLayout(t *testing.T) *server {
	t.Helper()
	text, err := os.ReadFile("testdata/layout-1.sql")
	require.NoError(t, err)
	s := startServer(t)
	conn, err := s.connect(t.Context(), "app", "app")
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), string(text)).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return s
}

// takes takes what try asks for, and gives it back. Its token is greater than those that layout 1 stored.
func takes(t *testing.T, what string, try func() (*locker.Lease, error)) {
	t.Helper()
	lease, err := try()
	require.NoError(t, err, what)
	require.Greater(t, lease.Token(), oldToken, what)
	require.NoError(t, lease.Unlock(context.WithoutCancel(t.Context())), what)
}

// TestOldLayoutIsRespected: a lock and permits that layout 1 of docs/versioning.md stored, in its tables, keep out this
// version until they end, Inspect reports them, and the next tokens are greater. Keys whose locks have ended are free.
func TestOldLayoutIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := storeLayout(t), t.Context()
	l := newLocker(t, s.pool(t, "")).(*locker.Client)
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	lock := func(key string) func() (*locker.Lease, error) {
		return func() (*locker.Lease, error) { return l.TryLock(ctx, key) }
	}
	permit := func() (*locker.Lease, error) { return sem.TryAcquire(ctx) }
	for what, try := range map[string]func() (*locker.Lease, error){"k": lock("k"), "p": lock("p"), "a permit of p": permit} {
		_, err := try()
		require.ErrorIs(t, err, locker.ErrNotAcquired, what)
	}
	h, err := l.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []any{true, "0f0e0d0c-1111-4222-8333-444455556666:1", "worker", oldToken}, []any{h.Held, h.ID, h.Owner, h.Token})
	require.Positive(t, h.Remaining)
	h, err = l.Inspect(ctx, "p")
	require.NoError(t, err)
	require.Equal(t, []any{true, 2, 2, oldToken}, []any{h.Held, h.Permits, h.Limit, h.Token})
	owners := map[string]int{}
	for h, err := range l.Permits(ctx, "p") {
		require.NoError(t, err)
		owners[h.Owner] = h.Permits
	}
	require.Equal(t, map[string]int{"worker": 2}, owners)
	for _, key := range []string{"e", "f"} {
		h, err := l.Inspect(ctx, key)
		require.NoError(t, err)
		require.False(t, h.Held, key)
		takes(t, key, lock(key))
	}

	// Their ends come, and that of the claim of permits before that of its key.
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = now() WHERE key = 'k'`))
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = now() WHERE hash = sha256('p')`))
	takes(t, "k", lock("k"))
	takes(t, "a permit of p", permit)
	takes(t, "p", lock("p"))
}

// TestOldReleaseIsSeen: Lock waits for a lock that layout 1 stored, until the release of an older version.
func TestOldReleaseIsSeen(t *testing.T) {
	t.Parallel()
	s, waits := storeLayout(t), newWaiting()
	l := newLocker(t, s.pool(t, ""), locker.WithObserver(waits))
	type answer struct {
		lease *locker.Lease
		err   error
	}
	answers := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than the lease has left
	defer cancel()
	go func() {
		lease, err := l.Lock(ctx, "k")
		answers <- answer{lease, err}
	}()
	select {
	case <-waits.c:
	case a := <-answers:
		require.Fail(t, "Lock has not waited", "%v", a.err)
	}
	require.NoError(t, s.admin(ctx, `WITH kept AS (
			UPDATE `+table+` SET id = '', owner = '', expires = '-infinity'
			WHERE hash = sha256('k') AND id = '0f0e0d0c-1111-4222-8333-444455556666:1' RETURNING hash)
		SELECT pg_notify('locker_released', encode(hash, 'hex')) FROM kept`))
	takes(t, "k", func() (*locker.Lease, error) {
		a := <-answers
		return a.lease, a.err
	})
}

// TestOldBidIsRespected: a bid that layout 1 stored keeps a free permit from this version for as long as its Locker is
// heard of. A bid counts for two seconds, which a busy machine may take. So the bid is stored again before each try.
func TestOldBidIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := storeLayout(t), t.Context()
	sem, err := locker.NewSemaphore(newLocker(t, s.pool(t, "")), "b", 2)
	require.NoError(t, err)
	permit := func() (*locker.Lease, error) { return sem.TryAcquire(ctx) }
	takes(t, "without a bid", permit)
	bid := func(silent string) {
		t.Helper()
		require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET owner = convert_to(format('2 %s %s 0f0e0d0c-1111-4222-8333-444455556666:5', heard, heard), 'UTF8')
			FROM (SELECT (extract(epoch FROM clock_timestamp() - interval '`+silent+`') * 1000000)::bigint AS heard) AS clock WHERE key = 'b'`))
	}
	pace.Eventually(t, 20*time.Second, "the bid keeps the permit", func() bool {
		bid("0 s")
		lease, err := permit()
		if err == nil {
			require.NoError(t, lease.Unlock(ctx))
		}
		return errors.Is(err, locker.ErrNotAcquired)
	})
	bid("2 s")
	takes(t, "after a bid that has ended", permit)
}

// TestLayoutIsKept: this version makes the tables and rows of testdata/layout-1.sql. Only ids, tokens and times differ.
func TestLayoutIsKept(t *testing.T) {
	t.Parallel()
	old, s, ctx := storeLayout(t), startServer(t), t.Context()
	l, worker := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Minute)), locker.ContextWithOwner(ctx, "worker")
	released, err := l.TryLock(worker, "f")
	require.NoError(t, err)
	require.NoError(t, released.Unlock(ctx))
	_, err = l.TryLock(worker, "k")
	require.NoError(t, err)
	for key, n := range map[string]int{"p": 2, "b": 1} {
		sem, err := locker.NewSemaphore(l, key, 2)
		require.NoError(t, err)
		_, err = sem.AcquireN(worker, n)
		require.NoError(t, err)
	}
	for what, sql := range map[string]string{
		"columns": `SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns
			WHERE table_schema = 'public' ORDER BY table_name, ordinal_position`,
		"indexes": `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`,
		"keys": `SELECT concat_ws(' | ', convert_from(key, 'UTF8'), convert_from(id, 'UTF8'), convert_from(owner, 'UTF8'), hash = sha256(key),
			sign(token), sign(last_token), isfinite(since), expires > now(), forget > now()) FROM ` + table + ` WHERE key <> 'e' ORDER BY 1`,
		"permits": `SELECT concat_ws(' | ', convert_from(l.key, 'UTF8'), convert_from(p.id, 'UTF8'), convert_from(p.owner, 'UTF8'), p.era = l.since,
			p.permits, sign(p.token), isfinite(p.since), p.expires > now(), p.forget > now()) FROM ` + permitsTable + ` p JOIN ` + table + ` l USING (hash) ORDER BY 1`,
	} {
		require.Equal(t, lines(t, old, sql), lines(t, s, sql), what)
	}

	bidder, err := locker.NewSemaphore(newLocker(t, s.pool(t, "")), "b", 2)
	require.NoError(t, err)
	bid := permitstest.Bid(t, bidder, 2, func() (owner string) {
		require.NoError(t, s.ask(ctx, &owner, `SELECT convert_from(owner, 'UTF8') FROM `+table+` WHERE key = 'b'`))
		return owner
	})
	require.Regexp(t, `^2 \d{16} \d{16} ID$`, ids.ReplaceAllString(bid, "ID"))
}

// lines returns the lines of text that a query selects, with "ID" in place of each id.
func lines(t *testing.T, s *server, sql string) []string {
	t.Helper()
	conn, err := s.connect(t.Context(), "postgres", "app")
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for i := range all {
		all[i] = ids.ReplaceAllString(all[i], "ID")
	}
	return all
}

// ids matches the id of a claim.
var ids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`)
