// Package monitoring has a dashboard for Grafana and alerts for Prometheus.
package monitoring

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// exported has the labels of each exported metric, and their values.
type exported map[string]map[string][]string

func readExported(t *testing.T) (x exported) {
	t.Helper()
	text, err := os.ReadFile("../testdata/exported.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &x))
	return x
}

var promQL = parser.NewParser(parser.Options{})

// check fails for each name in an expression that is not exported: a metric, a label of it, or a
// value that the label never has.
func (x exported) check(t *testing.T, expr string) (metrics []string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		metrics = append(metrics, s.Name)
		has := x[s.Name]
		require.NotNil(t, has, "%s is not exported, but in %s", s.Name, expr)
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				require.Contains(t, has, m.Name, "label of %s in %s", s.Name, expr)
				x.checkValues(t, has[m.Name], m, expr)
			}
		}
		for _, above := range path {
			if a, ok := above.(*parser.AggregateExpr); ok {
				for _, label := range a.Grouping {
					require.Contains(t, has, label, "grouping of %s in %s", s.Name, expr)
				}
			}
		}
		return nil
	})
	require.NotEmpty(t, metrics, expr)
	return metrics
}

// checkValues checks that each alternative of a matcher is a value that was exported. "other"
// is for what package locker may add.
func (x exported) checkValues(t *testing.T, has []string, m *labels.Matcher, expr string) {
	t.Helper()
	if m.Value == ".*" {
		return
	}
	for value := range strings.SplitSeq(m.Value, "|") {
		if value != "other" {
			require.Contains(t, has, value, "value of %s in %s", m.Name, expr)
		}
	}
}

type dashboard struct {
	Title      string
	UID        string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

var legendLabels = regexp.MustCompile(`{{(\w+)}}`)

// Every panel of the dashboard asks for what is exported, and every metric is on a panel.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("grafana-dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.UID)
	x := readExported(t)
	// As Grafana replaces its variables.
	vars := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*", "$strategy", ".*")
	var shown []string
	ids := make(map[int]bool)
	for i, p := range d.Panels {
		require.NotEmpty(t, p.Title)
		require.False(t, ids[p.ID], "the id of %s is another's, too", p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := vars.Replace(target.Expr)
			require.NotContains(t, expr, "$", "a variable that is not known")
			shown = append(shown, x.check(t, expr)...)
			for _, label := range legendLabels.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, expr, "by ("+label[1]+")", "the legend of %s has a label that its result has not", p.Title)
			}
		}
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			require.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H, "%s covers %s", p.Title, o.Title)
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			m := values.FindStringSubmatch(v.Definition)
			require.NotNil(t, m, v.Definition)
			shown = append(shown, x.check(t, "count by ("+m[2]+") ("+vars.Replace(m[1])+")")...)
		}
	}
	for name := range x {
		if strings.HasPrefix(name, "locker_") && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			require.Contains(t, shown, name, "no panel shows it")
		}
	}
}

// The alerts are rules that Prometheus accepts, on metrics that are exported.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("prometheus-alerts.yaml")
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, promQL, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	x := readExported(t)
	runbooks, err := os.ReadFile("../../docs/runbooks.md")
	require.NoError(t, err)
	var alerts []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			x.check(t, r.Expr)
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["description"], r.Alert)
			require.Equal(t, "https://github.com/distlock/locker/blob/main/docs/runbooks.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
			require.Contains(t, string(runbooks), "\n## "+r.Alert+"\n")
		}
	}
	for _, want := range []string{"LockerLeaseLost", "LockerStoreUnavailable", "LockerRenewalsFailing", "LockerLongWaits", "LockerNodeInTrouble"} {
		require.True(t, slices.Contains(alerts, want), want)
	}
}
