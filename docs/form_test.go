package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesOpenWithText: the title is followed by a paragraph, in which a reader sees what the page is for.
func TestPagesOpenWithText(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	opening := regexp.MustCompile(`^(?:<!-- .* -->\n)?# .+\n\n[A-Z\[]`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Regexp(t, opening, string(text), page)
	}
}

// TestReadmeIsShort: README has 150 lines at most. More belongs on a page of docs.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 150)
}

// TestGoDocAnswers: go doc knows each symbol that CONTRIBUTING.md names as the answer to a reader's question.
func TestGoDocAnswers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n## What `go doc` answers\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	symbols := 0
	for _, m := range regexp.MustCompile("(?m)[|,] `([\\w.]+)`").FindAllStringSubmatch(table, -1) {
		out, err := exec.Command("go", "doc", "github.com/distlock/locker", m[1]).CombinedOutput()
		require.NoError(t, err, "%s: %s", m[1], out)
		symbols++
	}
	require.GreaterOrEqual(t, symbols, 10)
}
