package mysql_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/stretchr/testify/require"
)

// program makes one of a block of README.md, which is the body of a function.
const program = `package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/mysql"
	_ "github.com/distlock/locker/strategy/mysql/register"
)

var _ = []any{sql.Open, fmt.Print, strategy.Open, mysql.New, locker.New}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
%s
	return err
}
`

// TestDocsGo builds and runs the Go blocks of README.md: testdata/blocks.
func TestDocsGo(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	s, dir := startServer(t), t.TempDir()
	require.NoError(t, s.admin(t.Context(), `CREATE TABLE app.orders (id INT PRIMARY KEY, state TEXT NOT NULL); INSERT INTO app.orders VALUES (42, 'paid')`))
	s.makeTable(t)
	var blocks []docblocks.Block
	for _, b := range docblocks.Of("strategy/mysql/README.md", string(text)) {
		if b.Lang == "go" {
			b.Text = fmt.Sprintf(program, b.Text)
			blocks = append(blocks, b)
		}
	}
	require.Len(t, blocks, 3)
	m := docblocks.Module{Root: root, Like: "strategy/mysql", Tests: "testdata/blocks", Blocks: blocks}
	require.NoError(t, m.Write(dir, func(b docblocks.Block) string {
		require.Contains(t, b.Text, "app:secret@")
		return strings.NewReplacer("app:secret@", "app@", "db:3306", s.addr()).Replace(b.Text)
	}))
	test := docblocks.Go(dir, "test", "-vet=all", "-count=1", "./...")
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	state := ""
	require.NoError(t, s.ask(t.Context(), &state, `SELECT state FROM app.orders WHERE id = 42`))
	require.Equal(t, "shipped", state)
}
