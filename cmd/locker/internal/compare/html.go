package compare

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed report.html.tmpl
var page string

var report = template.Must(template.New("report").Parse(page))

// HTML writes the report: a page by itself, without network.
func (r *Result) HTML(w io.Writer) error {
	plots, err := r.plots()
	if err != nil {
		return err
	}
	return report.Execute(w, map[string]any{
		"R": r, "Names": r.names(), "Guarantees": r.guarantees(), "Figures": r.figures(), "Plots": plots, "Failures": r.failures(),
		"When": r.Started.Format("2 January 2006, 15:04"),
	})
}
