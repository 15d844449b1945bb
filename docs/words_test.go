package docs

import (
	"bytes"
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
	regexp.MustCompile(`(?i)\b(told|tells)\b`):      "reports, returns, shows, logs",
	regexp.MustCompile(`(?i)\blikewise\b`):          "the thing itself",
	regexp.MustCompile(`(?i)\brid(e|es|ing) out\b`): "retries",
	regexp.MustCompile(`(?i)\bleft behind\b`):       "abandoned",
	regexp.MustCompile(`(?i)\b(lanes?|hubs?)\b`):    "pipeline, subscriber",
	regexp.MustCompile(`(?i)\b(pairs|commands|sections|overs|releases|revisions|acquisitions|renewals|looks|times|tokens) a second\b`): "per second",
}

// code matches a block or a span of code.
var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

func words(t *testing.T, where string, text []byte) {
	t.Helper()
	for word, instead := range leftBehind {
		for _, at := range word.FindAllIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			t.Errorf("%s:%d: %q: want %s", where, line, text[at[0]:at[1]], instead)
		}
	}
}

// TestWordsOfPages checks the pages that users read. The records of decisions quote what was.
func TestWordsOfPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		words(t, page, code.ReplaceAllFunc(text, func(quoted []byte) []byte {
			return bytes.Repeat([]byte("\n"), bytes.Count(quoted, []byte("\n")))
		}))
	}
}

// TestWordsOfComments checks the comments of the packages whose documentation users read, tests apart.
func TestWordsOfComments(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "driver", "strategy", "renewal", "fence", "adapters", "otellocker", "cmd/locker"} {
		err := filepath.WalkDir("../"+dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata" || dir == "." && path != "../."):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, group := range f.Comments {
				words(t, files.Position(group.Pos()).String(), []byte(group.Text()))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
