package compare

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

// Second is a picture of one contended key: which process held it when.
type Second struct {
	MS        float64 `json:"ms"` // how long it is; a column of the picture is a thousandth of that
	Changes   int     `json:"changes"`
	Processes []Turns `json:"processes"`
}

// Turns holds the turns of one process.
type Turns struct {
	Grants int `json:"grants"`
	// Blocks are neighbouring columns in which it held the key, from the first to before the second.
	Blocks [][2]int `json:"blocks"`
}

const columns = 1000

// second makes the picture of a bout.
func (b bout) second(f *fought) *Second {
	s := &Second{MS: ms(b.End - b.Start), Changes: f.changes, Processes: make([]Turns, contenders)}
	column := func(at int64) int {
		return min(max(int(float64(at-b.Start)/float64(b.End-b.Start)*columns), 0), columns-1)
	}
	for _, g := range f.all { // in the order of the grants
		t := &s.Processes[g.process]
		t.Grants++
		from, to := column(g.Got), column(g.Left)+1
		if n := len(t.Blocks); n > 0 && from <= t.Blocks[n-1][1] {
			t.Blocks[n-1][1] = max(to, t.Blocks[n-1][1])
		} else {
			t.Blocks = append(t.Blocks, [2]int{from, to})
		}
	}
	slices.SortStableFunc(s.Processes, func(a, b Turns) int { return b.Grants - a.Grants })
	return s
}

// SVG has a row for each process.
func (s *Second) SVG() template.HTML {
	const row, bar = 12, 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" height="%d" aria-hidden="true">`, columns, row*len(s.Processes), row*len(s.Processes))
	for i, t := range s.Processes {
		fmt.Fprintf(&b, `<path fill="%s" d="`, hex(colours[i%len(colours)]))
		for _, block := range t.Blocks {
			fmt.Fprintf(&b, "M%d %dh%dv%dh%dz", block[0], i*row+1, block[1]-block[0], bar, block[0]-block[1])
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // numbers only
}

// Shares returns the grants of each process.
func (s *Second) Shares() string {
	var all []string
	for _, t := range s.Processes {
		all = append(all, count(t.Grants))
	}
	return strings.Join(all, ", ")
}

// ChangesText returns the number of changes of process.
func (s *Second) ChangesText() string { return count(s.Changes) }

// Span returns how long the picture is.
func (s *Second) Span() string {
	return time.Duration(s.MS * float64(time.Millisecond)).Round(time.Millisecond).String()
}
