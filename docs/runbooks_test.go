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

// TestRunbooksHaveEveryLine: an operator finds each line that the library logs.
func TestRunbooksHaveEveryLine(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/runbooks.md"]
	line := regexp.MustCompile(`(?:\blog|logger\(\))\.(?:Debug|Info|Warn|Error)\(\s*"([^"]+)"|(?:slog\.Level\w+|return level), "([^"]+)"`)
	found := 0
	for _, dir := range []string{".", "internal", "strategy"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (dir == "." && path != ".." || path == "../internal/test"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			source, err := os.ReadFile(path)
			for _, m := range line.FindAllStringSubmatch(string(source), -1) {
				found++
				text, _, _ := strings.Cut(m[1]+m[2], ":")
				if !strings.Contains(page, "`"+strings.TrimSpace(text)) {
					t.Errorf("%s logs %q: docs/runbooks.md does not have it", path, text)
				}
			}
			return err
		})
		require.NoError(t, err)
	}
	require.Greater(t, found, 20)
}

// TestRunbooksHaveEveryAlert: the table has the alerts of otellocker, and panels of its dashboard.
func TestRunbooksHaveEveryAlert(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/runbooks.md"]
	alerts, err := os.ReadFile("../otellocker/monitoring/prometheus-alerts.yaml")
	require.NoError(t, err)
	dashboard, err := os.ReadFile("../otellocker/monitoring/grafana-dashboard.json")
	require.NoError(t, err)
	all := strings.Split(string(alerts), "- alert: ")[1:]
	require.Greater(t, len(all), 5)
	for _, alert := range all {
		name, rest, _ := strings.Cut(alert, "\n")
		severity, pause := regexp.MustCompile(`severity: (\w+)`).FindStringSubmatch(rest)[1], "–"
		if m := regexp.MustCompile(`\bfor: (\d+)m\n`).FindStringSubmatch(rest); m != nil {
			pause = m[1] + " minutes?"
		}
		row := regexp.MustCompile(`\| \[` + name + `\]\(#` + strings.ToLower(name) + `\) \| ` + severity + ` \| ` + pause + ` \| (.*) \|\n`).FindStringSubmatch(page)
		if row == nil {
			t.Errorf("docs/runbooks.md has no row for %s, %s, for %s", name, severity, pause)
		} else if !strings.Contains(string(dashboard), `"title": "`+row[1]+`"`) {
			t.Errorf("%s: the dashboard has no panel %q", name, row[1])
		}
	}
}
