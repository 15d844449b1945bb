package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/tokentest"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

func newLocker(tb testing.TB, db *sql.DB, opts ...locker.Option) *locker.Client {
	tb.Helper()
	l, err := lockmysql.New(db, opts...)
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

func cycle(t *testing.T, l locker.Locker, key string) (token int64) {
	t.Helper()
	lease, err := l.Lock(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	return lease.Token()
}

// Many connections find the table missing at the same time.
func TestTableIsCreatedOnce(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	const n = 16
	start := make(chan struct{})
	errs := make(chan error, n)
	for i := range n {
		db := s.pool(t, 0, "")
		require.NoError(t, db.PingContext(ctx))
		l := newLocker(t, db, locker.WithTTL(time.Minute))
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

// Processes, which are this test with the DSN in their environment, find it missing, too.
func TestTableIsCreatedByProcesses(t *testing.T) {
	t.Parallel()
	const env = "LOCKER_MYSQL_DSN"
	if dsn := os.Getenv(env); dsn != "" {
		db, err := openPool(dsn, 0)
		require.NoError(t, err)
		defer db.Close()
		_, err = newLocker(t, db).TryLock(t.Context(), fmt.Sprint(os.Getpid()))
		require.NoError(t, err)
		return
	}
	s := startServer(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), env+"="+s.dsn(""))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
	all.Wait()
}

// Keys are told apart by their bytes, whatever a collation takes for equal.
func TestKeys(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	a, b := newLocker(t, s.pool(t, 0, "")), newLocker(t, s.pool(t, 0, ""))
	long := strings.Repeat("k", locker.MaxKeyLen)
	keys := []string{"\x00", "a\x00b", "a\x00", "a", "A", "ä", "a ", "a  ", `\x61`, "'", "?", `"`, "`", long, long[1:] + "l", "ключ", "%", "%d", "🔒", "\n\x1a"}
	for _, key := range keys {
		lease, err := a.TryLock(ctx, key)
		require.NoError(t, err, "%.40q", key)
		_, err = b.TryLock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		h, err := b.Inspect(ctx, key)
		require.NoError(t, err)
		require.Equal(t, lease.Owner(), h.Owner)
		require.Equal(t, "mysql", h.Strategy)
	}
	var names []string
	for h, err := range b.Holders(ctx, "*") {
		require.NoError(t, err)
		names = append(names, h.Key)
	}
	require.ElementsMatch(t, keys, names)
}

func TestTokensAreReserved(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := lockmysql.NewDriver(s.pool(t, 0, ""))
	defer d.Close()
	tokentest.Kept(t, d)
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t, "--loose-skip-ssl", "--loose-tls-version="), t.Context() // one without TLS
	schema, err := lockmysql.Schema(table)
	require.NoError(t, err)
	require.NoError(t, s.admin(ctx, `CREATE USER weak; CREATE TABLE app.other (x INT); GRANT SELECT ON app.other TO weak`))
	cfg := config("weak", "app")
	cfg.Net, cfg.Addr = "tcp", s.addr()
	db, err := openPool(cfg.FormatDSN(), 0)
	require.NoError(t, err)
	defer db.Close()
	weak := newLocker(t, db)
	refused := func(l locker.Locker, words ...string) {
		t.Helper()
		start := time.Now()
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		for _, w := range words {
			require.ErrorContains(t, err, w)
		}
		require.Less(t, time.Since(start), 5*time.Second, "that is not ridden out")
	}
	refused(weak, "command denied", "mysql.Schema makes the table `locker_locks`")
	require.NoError(t, s.admin(ctx, `CREATE TABLE app.locker_locks (x INT); GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_locks TO weak`))
	refused(weak, "Unknown column")
	require.NoError(t, s.admin(ctx, `DROP TABLE app.locker_locks`))
	refused(weak, "`locker_locks` does not exist", "CREATE command denied", "mysql.Schema")
	refused(newLocker(t, db, lockmysql.WithTable("nowhere.locks")), "denied")
	for range 2 {
		require.NoError(t, s.admin(ctx, schema))
	}
	lease, err := weak.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(ctx))
	require.NoError(t, lease.Unlock(ctx))

	for params, words := range map[string]string{"?tls=true": "TLS", "?no_such_setting=1": "no_such_setting"} {
		refused(newLocker(t, s.pool(t, 0, params)), words)
	}
	cfg.DBName = ""
	nowhere, err := openPool(cfg.FormatDSN(), 0)
	require.NoError(t, err)
	defer nowhere.Close()
	refused(newLocker(t, nowhere), "No database selected")
	cfg.User = "nobody"
	unknown, err := openPool(cfg.FormatDSN(), 0)
	require.NoError(t, err)
	refused(newLocker(t, unknown), "Access denied")
	require.NoError(t, unknown.Close())
	refused(newLocker(t, unknown), "database is closed")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 0, "")
	_, err := lockmysql.New(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	for _, name := range []string{"", "a.b.c", ".", "a\x00", "a ", "\xff", "🔒", strings.Repeat("x", 65)} {
		_, err := lockmysql.New(db, lockmysql.WithTable(name))
		require.ErrorIs(t, err, locker.ErrInvalid, name)
		_, err = lockmysql.Schema(name)
		require.ErrorIs(t, err, locker.ErrInvalid, name)
	}
	_, err = lockmysql.New(db, locker.WithDriverOption(1))
	require.ErrorIs(t, err, locker.ErrInvalid)

	for _, name := range []string{"locks", "app.locks", "app.it's `mine` \"100%d\" \\", "zamkí"} {
		l := newLocker(t, db, lockmysql.WithTable(name))
		for range 40 { // until some sweep the table
			cycle(t, l, "k "+name)
		}
		lease, err := l.TryLock(ctx, "k "+name)
		require.NoError(t, err)
		require.NoError(t, lease.Renew(ctx))
		require.NoError(t, lease.Unlock(ctx))
	}
	n := 0
	require.NoError(t, s.ask(ctx, &n, `SELECT COUNT(*) FROM app.locks`))
	require.Equal(t, 2, n, "locks is app.locks here")
}

// Old rows are deleted by releases; those in use are not, nor is a row that somebody has locked waited for.
func TestOldRowsAreForgotten(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 0, "")
	l := newLocker(t, db)
	last := int64(0)
	for i := range 20 {
		last = cycle(t, l, fmt.Sprint(i))
	}
	held, err := l.Lock(ctx, "held")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `UPDATE locker_locks SET forget = `+now+` - 1`)
	require.NoError(t, err)
	tx := begin(t, db)
	_, err = tx.ExecContext(ctx, `SELECT hash FROM locker_locks WHERE hash = UNHEX(SHA2('0', 256)) FOR UPDATE`)
	require.NoError(t, err)
	var keys string
	pace.Eventually(t, 30*time.Second, "a release sweeps the table", func() bool {
		cycle(t, l, "fresh")
		require.NoError(t, s.ask(ctx, &keys, `SELECT GROUP_CONCAT(lock_key ORDER BY lock_key) FROM app.locker_locks`))
		return !strings.Contains(keys, "19")
	})
	require.Equal(t, "0,fresh,held", keys)
	require.NoError(t, held.Unlock(ctx))
	require.Greater(t, cycle(t, l, "19"), last, "the clock goes on where the row was")
}

// A lease that is renewed for long has a row that is kept as long after it as that of a short one.
func TestRenewalsKeepTheRow(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := lockmysql.NewDriver(s.pool(t, 0, ""))
	defer d.Close()
	var claims []driver.Claim
	for _, key := range []string{"a", "b", "c"} {
		c := driver.Claim{Key: key, ID: "id of " + key, Owner: "o", TTL: time.Hour}
		_, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
		require.NoError(t, err)
		claims = append(claims, c)
	}
	require.NoError(t, s.admin(ctx, `UPDATE app.locker_locks SET forget = 0, expires = `+now+` + 1000000`))
	for _, some := range [][]driver.Claim{claims[:1], claims[1:]} {
		d.Renew(ctx, some, func(_ int, err error) { require.NoError(t, err) })
	}
	n := 0
	require.NoError(t, s.ask(ctx, &n, `SELECT COUNT(*) FROM app.locker_locks WHERE expires > `+now+` + 3590e6 AND forget >= expires + 7200e6 AND forget <= expires + 7260e6`))
	require.Equal(t, 3, n)
}

func Example() {
	server, err := newServer() // yours is there already
	if err == nil {
		err = server.start()
	}
	if err != nil {
		log.Fatal(err)
	}
	defer server.stop()

	ctx := context.Background()
	db, err := sql.Open("mysql", server.dsn(""))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	l, err := lockmysql.New(db)
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
