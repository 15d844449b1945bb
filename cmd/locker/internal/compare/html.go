package compare

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed report.html.tmpl
var page string

var report = template.Must(template.New("report").Parse(page))

// carrying are the plots that stand first: of a free key, and of one that processes contend for.
var carrying = []string{"pair", "changes", "waits"}

// HTML writes the report: a page by itself, without network.
func (r *Result) HTML(w io.Writer) error {
	plots, err := r.plots()
	if err != nil {
		return err
	}
	var first, rest []figurePlot
	for _, p := range plots {
		if slices.Contains(carrying, p.Name) {
			first = append(first, p)
		} else {
			rest = append(rest, p)
		}
	}
	settled, not := r.settled()
	return report.Execute(w, map[string]any{
		"R": r, "Names": r.names(), "Answers": r.answers(), "Settled": settled, "Unsettled": not, "Unmeasured": r.unmeasured(), "Tables": r.tables(), "First": first, "Rest": rest,
		"Failures": r.Failures(), "Only": r.only(), "Warning": r.warning(), "About": r.about(), "AllPass": r.allPass(), "Timelines": r.timelines(),
		"When": r.Started.Format("2 January 2006, 15:04"), "Pictured": slices.ContainsFunc(r.Strategies, func(s *Strategy) bool { return s.Second != nil }),
	})
}

// answers has a line for each need: whether a strategy meets it, whether no other one is better by more than
// a fifth beyond the noise, and the first figure that the need weighs.
func (r *Result) answers() (rows []row) {
	for _, a := range r.Advice {
		line := row{Title: string(a.Need), About: a.What}
		if len(a.Weighs) > 0 {
			line.Figure = strings.TrimPrefix(metricOf(a.Weighs[0]).title, "… ")
		}
		for _, s := range r.Strategies {
			c := cell{Text: "no", At: "answer/" + string(a.Need) + "/" + s.Name}
			switch {
			case slices.Contains(a.Best, s.Name) && len(a.Meet) > 1:
				c.Text, c.Mark = "best", "good"
			case slices.Contains(a.Meet, s.Name):
				c.Text, c.Mark = "met", "good"
			case s.Properties[needs[a.Need].demands] != "":
				c.Text, c.Mark = s.trouble(), "bad"
			}
			if c.Mark == "good" {
				c.More = a.reason(s)
			}
			line.Cells = append(line.Cells, c)
		}
		rows = append(rows, line)
	}
	return rows
}

// trouble says why a strategy is not advised that has what a need demands.
func (s *Strategy) trouble() string {
	if s.Error != "" {
		return "an error"
	}
	return "failed a case"
}

// reason returns the figure by which a strategy meets a need, or how.
func (a Advice) reason(s *Strategy) string {
	if len(a.Weighs) == 0 {
		return s.Properties[needs[a.Need].demands]
	}
	m := metricOf(a.Weighs[0])
	return strings.TrimSpace(s.Figures[m.id].short() + " " + m.unit)
}

// short returns the figure with its spread.
func (f *Figure) short() string {
	switch {
	case f == nil:
		return "not measured"
	case f.Few:
		return f.text()
	}
	return f.median() + " (" + f.spread() + ")"
}

// settled divides the advice into that by which the run ranks those that meet the need, or has nothing to rank, and the rest.
func (r *Result) settled() (settled, not []Advice) {
	for _, a := range r.Advice {
		if len(a.Weighs) > 0 && len(a.Meet) > 1 && len(a.Best) == 0 {
			not = append(not, a)
		} else {
			settled = append(settled, a)
		}
	}
	return settled, not
}

// unmeasured has a line for each question that no run of this program answers.
func (r *Result) unmeasured() []string {
	lines := []string{fmt.Sprintf("Hundreds of processes at one key: in this run %d contended, and %d waited. The promises below say which waiters a release wakes. The figures of a process that waits are for each process.", contenders, waiters)}
	if r.OwnServers {
		lines = append(lines, "The network and the disks of your servers: these servers ran on this machine. --url names yours.")
	}
	return lines
}
