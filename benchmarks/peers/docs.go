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

//go:embed performance.md.tmpl
var docTemplate string

// A page is what the template of docs/performance.md is filled from.
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

// write writes performance.md and its plots into dir.
func (p *page) write(dir string) error {
	t, err := template.New("performance.md").Funcs(template.FuncMap{
		"targets": func() string { return p.targets(scenarios) },
		"tables":  func(name string) string { return p.tables(find(name)) },
		"who":     func(contenders ...string) []string { return contenders },
		"grid":    p.grid,
		"fig":     func(of ...string) string { return p.times(1, of[0], of[1], of[2], of[3]) },
		"times":   p.times,
	}).Parse(docTemplate)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := t.Execute(&out, p); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "performance.md"), []byte(out.String()), 0o644), p.plots(dir))
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
