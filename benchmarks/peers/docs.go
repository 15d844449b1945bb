package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
	results
	Command, Date, Machine, Load string
	Versions                     []string
	Rounds                       int
	Duration                     time.Duration
}

func newPage(cfg config, redisVersion string) *page {
	return &page{
		Command: cfg.command, Date: time.Now().UTC().Format(time.DateOnly),
		Machine: machine(), Load: firstField("/proc/loadavg"),
		Versions: versions(redisVersion), Rounds: cfg.rounds, Duration: cfg.duration,
	}
}

// write writes performance.md and its plots into dir.
func (p *page) write(dir string) error {
	t, err := template.New("performance.md").Funcs(template.FuncMap{
		"table": p.markdown, "grid": p.grid, "fig": p.fig, "targets": p.targetTable,
		"million": p.million, "thousands": p.tenThousand,
	}).Parse(docTemplate)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := t.Execute(&out, p); err != nil {
		return err
	}
	if err := p.plots(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "performance.md"), []byte(out.String()), 0o644)
}

func find(name string) (scenario, error) {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return scenario{}, fmt.Errorf("no scenario is called %q", name)
	}
	return scenarios[i], nil
}

func (s scenario) metric(name string) (metric, error) {
	for _, m := range s.metrics {
		if m.name == name {
			return m, nil
		}
	}
	return metric{}, fmt.Errorf("%s has no %q", s.name, name)
}

// fig is one figure, for the text.
func (p *page) fig(name, label, contender, metricName string) (string, error) {
	s, err := find(name)
	if err != nil {
		return "", err
	}
	m, err := s.metric(metricName)
	return m.show(p.value(s, label, contender, m)), err
}

// markdown is the tables of a scenario, one for each of its setups.
func (p *page) markdown(name string) (string, error) {
	s, err := find(name)
	if err != nil {
		return "", err
	}
	var out []string
	for _, set := range s.setups {
		rows := p.table(s, set.label)
		rows[0][0] = set.label
		out = append(out, markdownTable(rows))
	}
	return strings.Join(out, "\n"), nil
}

// grid is one metric of a scenario, with a column for each of its setups.
func (p *page) grid(name, metricName string) (string, error) {
	s, err := find(name)
	if err != nil {
		return "", err
	}
	m, err := s.metric(metricName)
	rows := [][]string{{m.name}}
	for _, set := range s.setups {
		rows[0] = append(rows[0], set.label, "÷ best peer")
	}
	for _, c := range s.who {
		row := []string{c}
		for _, set := range s.setups {
			v := p.value(s, set.label, c, m)
			row = append(row, m.show(v), ratio(v, p.best(s, set.label, m)))
		}
		rows = append(rows, row)
	}
	return markdownTable(rows), err
}

// targetTable has a row for each target.
func (p *page) targetTable() string {
	rows := [][]string{append([]string{"scenario", "figure", "target"}, ours...)}
	for _, s := range scenarios {
		for _, t := range s.targets {
			row := []string{s.name, t.metric.name, t.String()}
			for _, c := range ours {
				cell := ""
				if met, ok := p.met(s, t, c); ok && slices.Contains(t.of, c) {
					cell = fmt.Sprintf("%s, %s", t.metric.show(p.value(s, t.setup, c, t.metric)), verdict(met, ok))
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	return markdownTable(rows)
}

// million is what a million held locks with a TTL of 30 s come to.
func (p *page) million() string {
	const n, ttl = 1e6, 30
	rows := [][]string{{"", "Redis memory", "client memory", "goroutines", "Redis, cores", "clients, cores"}}
	for _, c := range held.who {
		v := func(m metric) float64 { return n * p.value(held, "", c, m) }
		rows = append(rows, []string{c,
			gigabytes(v(redisBytesPerLock)), gigabytes(v(bytesPerLock)), number(v(goroutinesPerLock), count),
			number(v(redisCPUPerTTL)/ttl, plain), number(v(clientCPUPerTTL)/ttl, plain),
		})
	}
	return markdownTable(rows)
}

// tenThousand is what ten thousand processes come to: those that wait for one key, and
// the locks that one core of Redis grants them on keys of their own.
func (p *page) tenThousand() string {
	const n = 1e4
	rows := [][]string{{"", "connections", "Redis memory", "Redis to wait, cores", "Redis CPU per hand-over to one of 1,000", "pairs/s a core of Redis grants"}}
	for _, c := range queue.who {
		v := func(m metric) float64 { return n * p.value(queue, "", c, m) }
		rows = append(rows, []string{c,
			number(v(connectionsPerWaiter), count), gigabytes(v(redisBytesPerWaiter)), number(v(redisCPUPerWaiter), plain),
			redisCPUHop.show(p.value(crowd, "1000", c, redisCPUHop)), number(1/p.value(wide, "", c, redisCPU), count),
		})
	}
	return markdownTable(rows)
}

func gigabytes(v float64) string {
	return number(v, func(v float64) string { return fmt.Sprintf("%.2f GB", v/1e9) })
}

func number(v float64, u unit) string { return metric{unit: u}.show(v) }

func markdownTable(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|---%s|\n", strings.Repeat("|---:", len(row)-1))
		}
	}
	return b.String()
}

func machine() string {
	model := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), model, runtime.GOOS)
}

// firstField is the first word of a file, or what stands for a missing figure.
func firstField(path string) string {
	b, _ := os.ReadFile(path)
	if fields := strings.Fields(string(b)); len(fields) > 0 {
		return fields[0]
	}
	return missing
}

func versions(redisVersion string) []string {
	out := []string{"Redis " + redisVersion, strings.Replace(runtime.Version(), "go", "Go ", 1)}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, d := range info.Deps {
		for _, path := range []string{"go-redsync/redsync", "bsm/redislock", "redis/rueidis", "redis/go-redis"} {
			if strings.Contains(d.Path, path) {
				out = append(out, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
			}
		}
	}
	return out
}

// finite leaves out what cannot be plotted.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && v > 0 }
