package compare

import (
	_ "embed"
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
	return report.Execute(w, map[string]any{
		"R": r, "Names": r.names(), "Answers": r.answers(), "Unsettled": r.unsettled(), "Tables": r.tables(), "First": first, "Rest": rest,
		"Failures": r.failures(), "Only": r.only(), "Warning": r.warning(), "About": r.about(), "AllPass": r.allPass(), "Timelines": r.timelines(),
		"When": r.Started.Format("2 January 2006, 15:04"), "Pictured": slices.ContainsFunc(r.Strategies, func(s *Strategy) bool { return s.Second != nil }),
	})
}

// answers has a line for each need: whether a strategy meets it, whether it is among the best outside
// the noise, and the first figure that the need weighs.
func (r *Result) answers() (rows []row) {
	for _, a := range r.Advice {
		line := row{Title: string(a.Need), About: a.What}
		for _, s := range r.Strategies {
			c := cell{Text: "no", At: "answer/" + string(a.Need) + "/" + s.Name}
			switch {
			case slices.Contains(a.Best, s.Name) && len(a.Meet) > 1:
				c.Text, c.Mark = "best", "good"
			case slices.Contains(a.Meet, s.Name):
				c.Text, c.Mark = "met", "good"
			case s.Properties[needs[a.Need].demands] != "":
				c.Text, c.Mark = "failed a case", "bad"
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

// reason is the figure by which a strategy meets a need, or how.
func (a Advice) reason(s *Strategy) string {
	if len(a.Weighs) == 0 {
		return s.Properties[needs[a.Need].demands]
	}
	m := metricOf(a.Weighs[0])
	return strings.TrimSpace(s.Figures[m.id].short() + " " + m.unit)
}

// short is a figure with its spread.
func (f *Figure) short() string {
	switch {
	case f == nil:
		return "not measured"
	case f.Few:
		return f.text()
	case f.AtLeast:
		return figure(f.Median) + " (" + figure(f.Least) + " to ≥ " + figure(f.Greatest) + ")"
	}
	return figure(f.Median) + " (" + figure(f.Least) + " to " + figure(f.Greatest) + ")"
}

// unsettled has a line for each need by which the run does not rank those that meet it.
func (r *Result) unsettled() (lines []string) {
	for _, a := range r.Advice {
		if len(a.Weighs) > 0 && len(a.Meet) > 1 && len(a.Best) == 0 {
			lines = append(lines, string(a.Need)+": "+a.Because)
		}
	}
	return lines
}
