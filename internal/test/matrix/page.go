package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:embed compatibility.md.tmpl
var pageTemplate string

// wanted are the releases that users run, whether they were tested or not.
var wanted = []struct{ Product, Releases string }{
	{"Redis", "6.0 6.2 7.0 7.2 7.4 8.0 8.2 8.4 8.6"},
	{"Valkey", "7.2 8.0 8.1 9.0 9.1"},
	{"KeyDB", "6.3"},
	{"PostgreSQL", "13 14 15 16 17 18"},
	{"MariaDB", "10.6 10.11 11.4 11.8"},
	{"MySQL", "8.0 8.4 9.7"},
	{"etcd", "3.4 3.5 3.6 3.7"},
}

// row is a release on the page, with its newest version that was tested.
type row struct {
	Product, Release string
	*result          // nil: not tested
}

func rows(all []result) (table []row) {
	for _, w := range wanted {
		for release := range strings.FieldsSeq(w.Releases) {
			r := row{Product: w.Product, Release: release}
			for i, of := range all {
				if of.Product == w.Product && strings.HasPrefix(of.Version+".", release+".") {
					r.result = &all[i] // all is in the order of versions
				}
			}
			table = append(table, r)
		}
	}
	return table
}

// Tested says what was run.
func (r row) Tested() string {
	if r.result == nil {
		return "not tested"
	}
	return r.Version
}

// Outcome says what became of it.
func (r row) Outcome() string {
	switch {
	case r.result == nil:
		return "–"
	case len(r.Failed) > 0:
		return fmt.Sprintf("%d passed, **%d failed**", r.Passed, len(r.Failed))
	}
	text := fmt.Sprintf("%d passed", r.Passed)
	if len(r.Alone) > 0 {
		text += fmt.Sprintf(", %d of them alone", len(r.Alone))
	}
	return text
}

// Left says how many tests need what the server lacks.
func (r row) Left() string {
	if r.result == nil || len(r.Skipped) == 0 {
		return "–"
	}
	return fmt.Sprint(len(r.Skipped))
}

// When returns the date and the commit.
func (r row) When() string {
	if r.result == nil {
		return "–"
	}
	when := r.Date + ", " + r.Commit
	if r.All {
		when += ", every case everywhere"
	}
	return when
}

// render returns the page.
func render(store string) (string, error) {
	all, err := load(store)
	if err != nil {
		return "", err
	}
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return "", err
	}
	table := rows(all)
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"Rows":    table,
		"Failing": slices.DeleteFunc(slices.Clone(table), func(r row) bool { return r.result == nil || len(r.Failed) == 0 }),
	})
	return b.String(), err
}
