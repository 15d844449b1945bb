package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testsOf returns the names of the tests below strategy/name.
func testsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "strategy", name), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	}))
	return tests
}

// TestStores: each test that a cell of stores.md names is a test of a strategy of the cell's column. Package
// redisconformance looks for the cases.
func TestStores(t *testing.T) {
	name := regexp.MustCompile("`(\\w+)`")
	var columns [][]string // the strategies of each
	found := 0
	for line := range strings.Lines(pages(t)["docs/stores.md"]) {
		cells := strings.Split(line, " | ")
		switch {
		case strings.HasPrefix(line, "|--"):
		case strings.HasPrefix(line, "| what happens |"):
			for _, cell := range cells {
				var strategies []string
				for _, m := range name.FindAllStringSubmatch(cell, -1) {
					strategies = append(strategies, m[1])
				}
				columns = append(columns, strategies)
			}
		case !strings.HasPrefix(line, "| "):
			columns = nil
		case columns != nil:
			require.Len(t, cells, len(columns), line)
			for i, cell := range cells {
				for _, m := range name.FindAllStringSubmatch(cell, -1) {
					if !strings.HasPrefix(m[1], "Test") {
						continue
					}
					found++
					there := false
					for _, strategy := range columns[i] {
						there = there || testsOf(t, strategy)[m[1]]
					}
					require.True(t, there, "%s is no test of %v", m[1], columns[i])
				}
			}
		}
	}
	require.Greater(t, found, 5)
}
