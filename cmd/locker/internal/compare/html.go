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
		"R": r, "Names": r.names(), "Tables": r.tables(), "Plots": plots, "Failures": r.failures(),
		"Only": r.only(), "Warning": r.warning(), "About": r.about(),
		"When": r.Started.Format("2 January 2006, 15:04"),
	})
}
