package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files, folders and functions that architecture.md names are there. It names each folder of internal.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	paths := regexp.MustCompile("`((?:[a-z]+/)*[a-z]+(?:/[a-z]+|\\.go|\\.md))`").FindAllSubmatch(page, -1)
	require.NotEmpty(t, paths)
	for _, p := range paths {
		_, err := os.Stat(filepath.Join(root(t), string(p[1])))
		require.NoError(t, err)
	}
	folders, err := os.ReadDir(filepath.Join(root(t), "internal"))
	require.NoError(t, err)
	for _, f := range folders {
		require.Contains(t, string(page), "`internal/"+f.Name(), "a package of its own has a line on the page")
	}
	steps := regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\| `(\\w+)` \\|").FindAllSubmatch(page, -1)
	require.Len(t, steps, 34)
	for _, s := range steps {
		source, err := os.ReadFile(filepath.Join(root(t), string(s[1])))
		require.NoError(t, err)
		require.Regexp(t, "(?m)^func (\\([^)]*\\) )?"+string(s[2])+"\\(", string(source), "%s, as architecture.md names it", s[1])
	}
}
