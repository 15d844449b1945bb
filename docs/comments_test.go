package docs

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// roundabout lists beginnings of comments that need two readings. Each value shows what to write instead.
var roundabout = map[*regexp.Regexp]string{
	regexp.MustCompile(`^[a-z]\w\w+ (is|are) (what|those of|that of)\b`):                               "returns, holds, lists",
	regexp.MustCompile(`^\w+ has (the|package|everything) .*\b(asked|derive|fire|learn|look|watch)\b`): "asks, lets, sets",
}

// TestCommentsAreDirect checks the comments of the packages that contributors read most, tests and their programs apart.
func TestCommentsAreDirect(t *testing.T) {
	t.Parallel()
	dirs := []string{".", "driver", "strategy", "renewal", "fence", "adapters", "otellocker", "cmd/locker", "conformance", "internal"}
	for _, dir := range dirs {
		err := filepath.WalkDir("../"+dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "test" || dir == "." && path != "../."):
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
				text := []byte(group.Text())
				if slash := filepath.ToSlash(path); strings.HasPrefix(slash, "../internal/redisconn/") || strings.HasPrefix(slash, "../internal/bound/") {
					words(t, files.Position(group.Pos()).String(), text)
				}
				for form, instead := range roundabout {
					for _, at := range form.FindAllIndex(text, -1) {
						line := files.Position(group.Pos()).Line + bytes.Count(text[:at[0]], []byte("\n"))
						t.Errorf("%s:%d: %q: want %s", path, line, text[at[0]:at[1]], instead)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
