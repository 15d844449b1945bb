package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"
)

var (
	//go:embed performance.md.tmpl
	docTemplate string
	//go:embed readme.md.tmpl
	readmeTemplate string
	//go:embed choosing.md.tmpl
	choosingTemplate string
)

// A page fills the template of docs/performance.md.
type page struct {
	config
	results
	Date, Machine, Load string
	Versions            []string
}

// newPage describes the run that is about to begin.
func newPage(cfg config, redisVersion string) *page {
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return &page{cfg, results{}, time.Now().UTC().Format(time.DateOnly), machine(), cmp.Or(first, missing), versions(redisVersion)}
}

// write writes performance.md and its plots into dir, and figures into choosing.md there and the
// README above it.
func (p *page) write(dir string) error {
	doc, err := p.fill(docTemplate)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "performance.md"), []byte(doc), 0o644),
		p.plots(dir), p.insert(filepath.Join(dir, "choosing.md"), choosingTemplate),
		p.insert(filepath.Join(dir, "..", "README.md"), readmeTemplate))
}

// insert fills a template between two marks of a file.
func (p *page) insert(name, template string) error {
	const begin, end = "<!-- by make bench-peers -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q and %q", name, begin, end)
	}
	figures, err := p.fill(template)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(before+begin+figures+end+after), 0o644)
}

func (p *page) fill(text string) (string, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"targets": func() string { return p.targets(scenarios) },
		"tables":  func(name string) string { return p.tables(find(name)) },
		"who":     func(contenders ...string) []string { return contenders },
		"grid":    p.grid,
		"row":     p.row,
		"fig":     func(of ...string) string { return p.times(1, of[0], of[1], of[2], of[3]) },
		"times":   p.times,
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, p)
	return out.String(), err
}

// row is one metric of ours in a cell and of each peer in one more, as a ratio to another
// contender if to is one.
func (p *page) row(name, label, metricName, to string) string {
	s := find(name)
	m := s.metric(metricName)
	show := func(of []string) (shown []string) {
		for _, c := range of {
			if to == "" {
				shown = append(shown, m.show(p.value(s, label, c, m)))
			} else {
				shown = append(shown, ratio(p.relative(s, label, c, m, to)))
			}
		}
		return shown
	}
	return strings.Join(append([]string{strings.Join(show(ours), "; ")}, show(peers)...), " | ")
}

// find, and metric, panic for a name that there is not; the template makes it an error.
func find(name string) scenario {
	return scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
}

func (s scenario) metric(name string) metric {
	return s.metrics[slices.IndexFunc(s.metrics, func(m metric) bool { return m.name == name })]
}

// times is n times a figure, for the text.
func (p *page) times(n float64, name, label, contender, metricName string) string {
	s := find(name)
	m := s.metric(metricName)
	return m.show(n * p.value(s, label, contender, m))
}

// grid is one metric of a scenario, with columns for each of its setups.
func (p *page) grid(name, metricName string) string {
	s := find(name)
	var labels []string
	for _, set := range s.setups {
		labels = append(labels, set.label)
	}
	return p.table(s, labels, []metric{s.metric(metricName)})
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func machine() string {
	model := runtime.GOARCH
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // where there is one
	if m := modelName.FindSubmatch(cpuinfo); m != nil {
		model = string(m[1])
	}
	return fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), model, runtime.GOOS)
}

func versions(redisVersion string) []string {
	out := []string{"Redis " + redisVersion, strings.Replace(runtime.Version(), "go", "Go ", 1)}
	info, ok := debug.ReadBuildInfo()
	for i := 0; ok && i < len(info.Deps); i++ {
		for _, path := range []string{"go-redsync/redsync/v4", "bsm/redislock", "redis/rueidis", "redis/go-redis/v9"} {
			if info.Deps[i].Path == "github.com/"+path {
				out = append(out, path+" "+info.Deps[i].Version)
			}
		}
	}
	return out
}
