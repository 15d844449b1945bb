package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker/benchmarks/internal/rig"
)

// insert puts text between the marks of a point in a page.
func insert(page, name, text string) error {
	begin, end := "<!-- scale: "+name+" -->\n", "<!-- end -->\n"
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q and %q", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+text+end+after), 0o644)
}

// A table grows row by row; the first is the head.
type table [][]string

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	*t = append(*t, row)
}

// String returns the table as markdown.
func (t table) String() string { return rig.Markdown(t) }

// in shows three digits of v in the greatest unit that makes it 1 at least.
func in(v float64, units []string, values []float64) string {
	i := 0
	for i < len(units)-1 && v < values[i] {
		i++
	}
	if v /= values[i]; v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64) + units[i]
	}
	return fmt.Sprintf("%.0f%s", v, units[i])
}

func count[N int | int64 | float64](v N) string {
	if v < 10_000 {
		return fmt.Sprintf("%.4g", float64(v))
	}
	return in(float64(v), []string{"M", "k"}, []float64{1e6, 1e3})
}

func seconds(v float64) string {
	return in(v, []string{" s", " ms", " µs"}, []float64{1, 1e-3, 1e-6})
}

func clock(d time.Duration) string { return seconds(d.Seconds()) }

func bytes(v float64) string {
	return in(v, []string{" GB", " MB", " KB", " B"}, []float64{1e9, 1e6, 1e3, 1})
}
