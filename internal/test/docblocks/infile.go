package docblocks

import (
	"os"
	"strings"
	"testing"
)

// InFile fails tb unless each Go block of page stands in the Go file, whatever its indentation: tests of the file run
// the page's code. Of an adapter it is cheaper than a module of the page's own.
func InFile(tb testing.TB, page, file string) {
	tb.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, b := range Of(page, string(text)) {
		if b.Lang != "go" {
			continue
		}
		if n++; !strings.Contains("\n"+unindented(string(source)), "\n"+unindented(b.Text)) {
			tb.Errorf("%s:%d: these lines are not in %s, whose tests run them:\n%s", page, b.Line, file, b.Text)
		}
	}
	if n == 0 {
		tb.Errorf("%s has no Go block", page)
	}
}

func unindented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimSpace(line) + "\n")
	}
	return out.String()
}
