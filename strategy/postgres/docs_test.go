package postgres_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock/locker/fence/sqlfence"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// pageBlocks are those blocks of the pages that are for PostgreSQL. (Package docs runs the others.)
func pageBlocks(t *testing.T, lang string) (some []docblocks.Block) {
	t.Helper()
	all, err := docblocks.Read("../..")
	require.NoError(t, err)
	for _, b := range all {
		if b.NeedsPostgres() && b.Lang == lang {
			some = append(some, b)
		}
	}
	require.NotEmpty(t, some)
	return some
}

// pageServer has the tables that the pages write about, and that of sqlfence. It has run the blocks
// of SQL that alter one.
func pageServer(t *testing.T) *server {
	t.Helper()
	s := startServer(t)
	require.NoError(t, s.admin(t.Context(), `
		CREATE TABLE stock (id text PRIMARY KEY, units int NOT NULL, price int NOT NULL);
		CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL, token bigint NOT NULL DEFAULT 0);
		INSERT INTO stock VALUES ('lamp', 10, 5);
		INSERT INTO orders VALUES (42, 'paid')`))
	fences, err := sqlfence.New(sqlfence.PostgreSQL, "")
	require.NoError(t, err)
	require.NoError(t, s.admin(t.Context(), fences.Schema()))
	for _, b := range pageBlocks(t, "sql") {
		if strings.HasPrefix(b.Text, "ALTER TABLE") {
			require.NoError(t, s.admin(t.Context(), b.Text), b.Name())
		}
	}
	return s
}

// TestDocsSQL: each statement of the pages is run by a test.
func TestDocsSQL(t *testing.T) {
	t.Parallel()
	for _, b := range pageBlocks(t, "sql") {
		// pageServer runs the first, TestOldSnapshotIsFound the second, TestOldTableIsPublished the third.
		if !strings.HasPrefix(b.Text, "ALTER TABLE") && !strings.Contains(b.Text, "pg_stat_activity") && !strings.Contains(b.Text, "DROP EXPRESSION") {
			t.Errorf("%s: say here how to test it", b.Name())
		}
	}
}

// TestDocsGo builds and runs the Go blocks that use a database: testdata/blocks.
func TestDocsGo(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s, dir := pageServer(t), t.TempDir()
	var blocks []docblocks.Block
	all, err := docblocks.Read(root)
	require.NoError(t, err)
	for _, b := range all {
		if b.Lang == "go" && b.NeedsPostgres() {
			blocks = append(blocks, b)
		}
	}
	m := docblocks.Module{Root: root, Like: "strategy/postgres", Tests: "testdata/blocks", Blocks: blocks}
	require.NoError(t, m.Write(dir, func(b docblocks.Block) string {
		return strings.ReplaceAll(b.Text, "postgres://postgres@localhost/postgres", s.url("postgres", "postgres"))
	}))
	test := docblocks.Go(dir, "test", "-vet=all", "-count=1", "./...")
	test.Env = append(test.Env, "DOCS_POSTGRES="+s.url("postgres", "app"))
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestDocsShell: psql under locker run gets the token.
func TestDocsShell(t *testing.T) {
	t.Parallel()
	s, srv, bin := pageServer(t), redistest.Start(t), t.TempDir()
	programs, err := servers.PostgresPrograms()
	require.NoError(t, err)
	out, err := docblocks.Go("../../cmd/locker", "build", "-o", filepath.Join(bin, "locker"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, b := range pageBlocks(t, "sh") {
		sh := exec.Command("sh", "-e", "-x", "-c", strings.ReplaceAll(docblocks.Script(b), "localhost:6379", srv.Addr()))
		sh.Dir = t.TempDir()
		sh.Env = append(os.Environ(), "PATH="+bin+":"+programs+":"+os.Getenv("PATH"), "PGHOST="+s.Dir, "PGUSER=postgres", "PGDATABASE=app")
		report := `UPDATE stock SET units = 3, token = :token WHERE id = 'lamp' AND token <= :token;`
		require.NoError(t, os.WriteFile(filepath.Join(sh.Dir, "report.sql"), []byte(report), 0o600))
		out, err := sh.CombinedOutput()
		require.NoError(t, err, "%s: %s", b.Name(), out)
		var token int64
		require.NoError(t, s.ask(t.Context(), &token, `SELECT token FROM stock WHERE units = 3`))
		require.Positive(t, token)
		require.NoError(t, s.admin(t.Context(), `UPDATE stock SET units = 10, token = 0`))
	}
}
