package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/stretchr/testify/require"
)

// TestAdapters: each adapter has a README that begins with code, which stands in its example_test.go and so runs; and it
// is in the table of docs/adapters.md, whose code is the README's.
func TestAdapters(t *testing.T) {
	names, err := filepath.Glob("../adapters/*/*.go")
	require.NoError(t, err)
	var adapters []string
	for _, name := range names {
		if dir := filepath.Base(filepath.Dir(name)); !slices.Contains(adapters, dir) {
			adapters = append(adapters, dir)
		}
	}
	table := pages(t)["docs/adapters.md"]
	for _, name := range adapters {
		t.Run(name, func(t *testing.T) {
			page := filepath.Join("../adapters", name, "README.md")
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			docblocks.InFile(t, page, filepath.Join("../adapters", name, "example_test.go"))
			first := docblocks.Of(page, string(text))[0]
			require.Equal(t, "go", first.Lang)
			require.LessOrEqual(t, strings.Count(first.Text, "\n"), 18)
			require.Less(t, first.Line, 12, "the README begins with code")
			row := regexp.MustCompile(`(?m)^.*adapters/` + name + `/README\.md.*\| ` + "`(.*)`" + ` \|$`).FindStringSubmatch(table)
			require.NotNil(t, row, "docs/adapters.md has no row for it")
			require.Contains(t, string(text), row[1])
		})
	}
}
