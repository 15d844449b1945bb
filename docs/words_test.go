package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// leftBehind lists words that this project does not use where users read: a reader would need a glossary for them, or they name
// nothing. Each value shows the words to write instead.
var leftBehind = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\b(told|tells)\b`):          "reports, returns, shows, logs",
	regexp.MustCompile(`(?i)\blikewise\b`):              "the thing itself",
	regexp.MustCompile(`(?i)\brid(e|es|ing) out\b`):     "retries",
	regexp.MustCompile(`(?i)\bleft behind\b`):           "abandoned",
	regexp.MustCompile(`(?i)\b(lanes?|hubs?)\b`):        "pipeline, subscriber",
	regexp.MustCompile(`(?i)\bother\s+way\s+round\b`):   "both directions",
	regexp.MustCompile(`(?i)\bthe\s+(latter|former)\b`): "the thing itself",
	regexp.MustCompile(`(?i)\b(pairs|commands|sections|overs|releases|revisions|acquisitions|renewals|looks|times|tokens|permits|bytes|unlock|\d[\d,]*k?) a second\b`): "per second",
}

// unread matches blocks and spans of code, and the targets of links: a file keeps its name.
var unread = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\]\\([^)\\s]*\\)")

func words(t *testing.T, where string, text []byte) {
	t.Helper()
	for word, instead := range leftBehind {
		for _, at := range word.FindAllIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			t.Errorf("%s:%d: %q: want %s", where, line, text[at[0]:at[1]], instead)
		}
	}
}

// TestWordsOfPages checks the pages that users and contributors read.
func TestWordsOfPages(t *testing.T) {
	t.Parallel()
	pages := []string{"../README.md", "../CHANGELOG.md", "../CODE_OF_CONDUCT.md", "../CONTRIBUTING.md", "../SECURITY.md", "../otellocker/README.md"}
	for _, pattern := range []string{"*.md", "decisions/*.md", "../adapters/*/README.md", "../strategy/*/README.md"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("%s: want pages, got %v, %v", pattern, some, err)
		}
		pages = append(pages, some...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		words(t, page, unread.ReplaceAllFunc(text, func(quoted []byte) []byte {
			return bytes.Repeat([]byte("\n"), bytes.Count(quoted, []byte("\n")))
		}))
	}
}

// TestWordsOfCode checks the comments and strings of the packages that users read or run, tests apart: strings are errors, help
// and log records.
func TestWordsOfCode(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "driver", "strategy", "renewal", "fence", "conformance", "adapters", "otellocker", "cmd/locker", "examples"} {
		err := filepath.WalkDir("../"+dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata" || dir == "." && path != "../."):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return wordsOfFile(t, path)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wordsOfFile(t *testing.T, path string) error {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range f.Comments {
		words(t, files.Position(group.Pos()).String(), []byte(group.Text()))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			words(t, files.Position(text.Pos()).String(), []byte(text.Value))
		}
		return true
	})
	return nil
}
