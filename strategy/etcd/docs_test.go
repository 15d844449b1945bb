package etcd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/test/docblocks"
)

// TestReadme builds and runs the block of the README.
func TestReadme(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := docblocks.Of("README.md", string(page))
	require.Len(t, blocks, 1)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module github.com/distlock/locker/strategy/etcd", "module readme", 1)
	text = strings.Replace(text, "=> ../..", "=> "+root, 1) + fmt.Sprintf(`
require github.com/distlock/locker/strategy/etcd v0.0.0-00010101000000-000000000000

replace github.com/distlock/locker/strategy/etcd => %s/strategy/etcd
`, root)
	program := `package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func run(ctx context.Context) error {
` + strings.Replace(blocks[0].Text, "localhost:2379", s.Endpoint(), 1) + `}

func ship(ctx context.Context, order int) error {
	lease, ok := locker.LeaseFromContext(ctx)
	fmt.Println("shipping", order, ok && lease.Token() > 0)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
`
	for name, text := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": program} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := docblocks.Go(dir, "run", "-mod=mod", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "shipping 42 true\n", string(out))
}
