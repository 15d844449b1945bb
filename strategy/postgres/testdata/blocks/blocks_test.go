package blocks_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/sqlfence"
	"github.com/distlock/locker/strategy/memory"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("DOCS_PROGRAM"); name != "" {
		programs[name]()
		return
	}
	os.Exit(m.Run())
}

func TestPrograms(t *testing.T) {
	for name := range programs {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DOCS_PROGRAM="+name)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Regexp(t, `^shipping order 42 with token [1-9]\d+\n$`, string(out))
	}
}

// before calls f before the n-th statement is sent.
type before struct {
	n, sent int
	f       func()
}

func (b *before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if b.sent++; b.sent == b.n {
		b.f()
	}
	return ctx
}

func (b *before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// open returns a database whose statements wait for locks for as long as given, "" for ever.
func open(t *testing.T, tracer pgx.QueryTracer, wait string) *sql.DB {
	config, err := pgx.ParseConfig(os.Getenv("DOCS_POSTGRES"))
	require.NoError(t, err)
	if wait != "" {
		config.RuntimeParams["lock_timeout"] = wait
	}
	// One statement is one query, and nothing is asked for beside them.
	config.Tracer, config.DefaultQueryExecMode = tracer, pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// rows returns the rows of the tables.
func rows(t *testing.T, db *sql.DB) (all string) {
	for _, table := range []string{"stock", "orders"} {
		var text sql.NullString
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT string_agg(t::text, ' ') FROM `+table+` t`).Scan(&text))
		all += text.String + "\n"
	}
	return all
}

// TestLateOwner: a block that writes to a database succeeds for the owner of the moment, also
// a second time. If a later owner has written before any of its statements, it returns an
// error and leaves alone what the later one wrote. Where the later owner has to wait for it, it
// succeeds, and the later one does after it.
func TestLateOwner(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	plain, impatient := open(t, nil, ""), open(t, nil, "50ms")
	reset := func() {
		_, err := plain.ExecContext(t.Context(), `UPDATE stock SET units = 10, price = 5, token = 0`)
		require.NoError(t, err)
		_, err = plain.ExecContext(t.Context(), `UPDATE orders SET state = 'paid', token = 0`)
		require.NoError(t, err)
		_, err = plain.ExecContext(t.Context(), `DELETE FROM `+sqlfence.DefaultTable)
		require.NoError(t, err)
	}
	require.NotEmpty(t, blocks)
	for name, run := range blocks {
		t.Run(name, func(t *testing.T) {
			early, later := lock(t, l), lock(t, l)
			require.Greater(t, later.Token(), early.Token())
			write := func(db *sql.DB, lease *locker.Lease, n int) error {
				return run(given{ctx: t.Context(), db: db, lease: lease, l: l, n: n})
			}
			reset()
			fresh, count := rows(t, plain), &before{}
			counted := open(t, count, "")
			require.NoError(t, write(counted, early, 1))
			require.NotEqual(t, fresh, rows(t, plain), "nothing was written")
			require.NoError(t, write(counted, early, 1), "an equal token was refused")
			require.Positive(t, count.sent)
			for n := 1; n <= count.sent/2; n++ {
				reset()
				var written string
				waits := false
				late := open(t, &before{n: n, f: func() {
					err := write(impatient, later, 2)
					var refused *pgconn.PgError
					if waits = errors.As(err, &refused) && refused.Code == "55P03"; !waits {
						require.NoError(t, err)
					}
					written = rows(t, plain)
				}}, "")
				err := write(late, early, 1)
				if waits {
					require.NoError(t, err)
					require.NotEqual(t, written, rows(t, plain), "nothing was written")
					require.NoError(t, write(plain, later, 2))
					continue
				}
				require.Error(t, err, "a later owner wrote before statement %d, and the block returned nil", n)
				require.True(t, errors.Is(err, fence.ErrStale) || strings.Contains(err.Error(), "refused"), "%v", err)
				require.Equal(t, written, rows(t, plain), "the late write was not refused")
			}
		})
	}
}

// lock returns a lease that has been unlocked: what counts is its token.
func lock(t *testing.T, l locker.Locker) *locker.Lease {
	lease, err := l.Lock(t.Context(), "stock")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	return lease
}
