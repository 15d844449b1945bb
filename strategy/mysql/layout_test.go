package mysql_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/permitstest"
)

// oldToken is the last token of each key in testdata/layout-1.sql. It is ahead of the clock, so that only last_token
// makes greater ones.
const oldToken = int64(1_900_000_000_000_000)

// storeLayout stores what testdata/layout-1.sql lists, for a minute.
func storeLayout(t *testing.T, s *server) {
	t.Helper()
	text, err := os.ReadFile("testdata/layout-1.sql")
	require.NoError(t, err)
	var at int64
	require.NoError(t, s.ask(t.Context(), &at, `SELECT `+now))
	require.NoError(t, s.admin(t.Context(), strings.NewReplacer("TOKEN", fmt.Sprint(oldToken), "NOW,", fmt.Sprint(at)+",",
		"ENDS", fmt.Sprint(at+time.Minute.Microseconds())).Replace(string(text))))
}

// TestOldLayoutIsRespected: a lock and permits that layout 1 of docs/versioning.md stored, in its tables, keep out this
// version until they end, Inspect reports them, and the next tokens are greater.
func TestOldLayoutIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	storeLayout(t, s)
	l := newLocker(t, s.pool(t, 0, ""))
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	for _, key := range []string{"k", "p"} {
		_, err := l.TryLock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired, key)
	}
	_, err = sem.TryAcquire(ctx)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	h, err := l.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []any{true, "0f0e0d0c-1111-4222-8333-444455556666:1", "worker", oldToken}, []any{h.Held, h.ID, h.Owner, h.Token})
	require.Positive(t, h.Remaining)
	h, err = l.Inspect(ctx, "p")
	require.NoError(t, err)
	require.Equal(t, []any{true, 2, 2}, []any{h.Held, h.Permits, h.Limit})
	owners := map[string]int{}
	for h, err := range l.Permits(ctx, "p") {
		require.NoError(t, err)
		owners[h.Owner] = h.Permits
	}
	require.Equal(t, map[string]int{"worker": 2}, owners)

	// Their ends come, and that of the claim of permits before that of its key.
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = `+now+` WHERE lock_key = 'k'`))
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = `+now))
	for _, take := range []func() (*locker.Lease, error){
		func() (*locker.Lease, error) { return l.TryLock(ctx, "k") },
		func() (*locker.Lease, error) { return sem.TryAcquire(ctx) },
		func() (*locker.Lease, error) { return l.TryLock(ctx, "p") },
	} {
		lease, err := take()
		require.NoError(t, err)
		require.Greater(t, lease.Token(), oldToken)
		require.NoError(t, lease.Unlock(ctx))
	}
}

// TestOldBidIsRespected: a bid that layout 1 stored keeps a free permit from this version for as long as its Locker is
// heard of. A bid counts for two seconds, which a busy machine may take. So the bid is stored again before each try.
func TestOldBidIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	storeLayout(t, s)
	sem, err := locker.NewSemaphore(newLocker(t, s.pool(t, 0, "")), "b", 2)
	require.NoError(t, err)
	takes := func(what string) {
		t.Helper()
		lease, err := sem.TryAcquire(ctx)
		require.NoError(t, err, what)
		require.Greater(t, lease.Token(), oldToken, what)
		require.NoError(t, lease.Unlock(ctx), what)
	}
	takes("without a bid")
	const ofLocker, ofClaim = "0f0e0d0c111142228333444455556666", "66665555444433382222411110c0d0e0" // halves of hashes
	bid := func(silent time.Duration) {
		t.Helper()
		heard := fmt.Sprintf("%s - %d", now, silent.Microseconds())
		require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET id = 'permits 2 0 0', expires = `+now+` + 60000000,
			owner = CONCAT_WS(' ', 2, `+heard+`, `+heard+`, ?, ?) WHERE lock_key = 'b'`, ofLocker, ofClaim))
	}
	pace.Eventually(t, 20*time.Second, "the bid keeps the permit", func() bool {
		bid(0)
		lease, err := sem.TryAcquire(ctx)
		if err == nil {
			require.NoError(t, lease.Unlock(ctx))
			return false
		}
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		return true
	})
	bid(2 * time.Second)
	takes("after a bid that has ended")
}

// TestLayoutIsKept: this version makes the tables, the lock and the permits of testdata/layout-1.sql. Only ids, tokens and times
// differ. The key "b" is left out: a release of its permits empties the row.
func TestLayoutIsKept(t *testing.T) {
	t.Parallel()
	old, s, ctx := startServer(t), startServer(t), t.Context()
	storeLayout(t, old)
	l, worker := newLocker(t, s.pool(t, 0, ""), locker.WithTTL(time.Minute)), locker.ContextWithOwner(ctx, "worker")
	_, err := l.TryLock(worker, "k")
	require.NoError(t, err)
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	_, err = sem.AcquireN(worker, 2)
	require.NoError(t, err)
	for what, sql := range map[string]string{
		"columns": `SELECT CONCAT_WS(' ', TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, HEX(COLUMN_DEFAULT)) FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA = 'app' ORDER BY TABLE_NAME, ORDINAL_POSITION`,
		"indexes": `SELECT CONCAT_WS(' ', TABLE_NAME, INDEX_NAME, NON_UNIQUE, SEQ_IN_INDEX, COLUMN_NAME) FROM information_schema.STATISTICS
			WHERE TABLE_SCHEMA = 'app' ORDER BY 1`,
		"keys": `SELECT CONCAT_WS(' | ', lock_key, id, owner, hash = UNHEX(SHA2(lock_key, 256)), SIGN(token), SIGN(last_token), ttl, since > 0, expires > since,
			forget >= expires) FROM ` + table + ` WHERE lock_key <> 'b' ORDER BY 1`,
		"permits": `SELECT CONCAT_WS(' | ', l.lock_key, p.claim = UNHEX(SHA2(p.id, 256)), p.id, p.owner, p.era > 0, p.permits, SIGN(p.token), p.ttl, p.since > 0,
			p.expires > p.since, p.forget >= p.expires) FROM ` + permitsTable + ` p JOIN ` + table + ` l USING (hash) WHERE p.permits > 0 ORDER BY 1`,
	} {
		require.Equal(t, lines(t, old, sql), lines(t, s, sql), what)
	}

	bidder, err := locker.NewSemaphore(newLocker(t, s.pool(t, 0, "")), "p", 2)
	require.NoError(t, err)
	bid := permitstest.Bid(t, bidder, 1, func() (owner string) {
		require.NoError(t, s.ask(ctx, &owner, `SELECT owner FROM `+table+` WHERE lock_key = 'p'`))
		return owner
	})
	require.Regexp(t, `^1 \d{16} \d{16} [0-9a-f]{32} [0-9a-f]{32}$`, bid)
}

// lines returns the lines of text that a query selects, with "ID" in place of each id.
func lines(t *testing.T, s *server, sql string) (all []string) {
	t.Helper()
	rows, err := s.root.QueryContext(t.Context(), sql)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		all = append(all, ids.ReplaceAllString(line, "ID"))
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, all)
	return all
}

// ids matches the id of a claim.
var ids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`)
