// Package peersuite runs cases of the conformance suite on other lock libraries, each behind a driver that calls it,
// and writes what happened into docs/peers-suite.md. Programs beside the libraries name them: benchmarks/suite and
// strategy/etcd/internal/suite.
package peersuite

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/report"
)

// Library is a lock library, or a strategy of locker beside it.
type Library struct {
	Name    string
	Module  string // the path of a library that is not ours
	Harness conformance.HarnessMaker
	LeftOut map[string]string // why cases do not apply, by the case's name without its group
	Why     map[string]string // why cases fail
}

// RenewsItself is why cases of renewal, and of locks that end without one, do not apply.
const RenewsItself = "the library renews its locks by itself, and the driver cannot stop that."

// Each gives each case its reason.
func Each(cases map[string][]string) map[string]string {
	why := map[string]string{}
	for reason, names := range cases {
		for _, name := range names {
			why[name] = reason
		}
	}
	return why
}

// Outcome holds the results of a library's cases.
type Outcome struct {
	Library
	Version string
	Results map[string]conformance.Result // by group/name
}

// Suite names the libraries on one store, and the cases that a program runs on them.
type Suite struct {
	Store     string        // on the page
	Command   string        // that runs it
	Server    func() string // the servers and their version
	Cases     string        // a pattern, as for [conformance.WithOnly]
	Libraries []Library
}

// Main is the program. It exits with 0 if our strategies pass, and each failure of others has a reason for the page.
func (s Suite) Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := s.run(ctx, os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "suite:", err)
	return 1
}

func (s Suite) run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	only := flags.String("only", "", "one library, e.g. redsync")
	cases := flags.String("cases", s.Cases, "the cases, as a regular expression")
	page := flags.String("docs", "", "a page to write everything into, between the marks of make report")
	if err := flags.Parse(args); err != nil {
		return err
	}
	libraries := slices.DeleteFunc(slices.Clone(s.Libraries), func(l Library) bool { return *only != "" && *only != l.Name })
	if len(libraries) == 0 || *page != "" && (*only != "" || *cases != s.Cases) {
		return errors.New("want a library that there is, and -docs for all of them")
	}
	var all []Outcome
	var errs []error
	for _, l := range libraries {
		o, err := l.Run(ctx, *cases, os.Stderr)
		if o.Version = report.Commit(ctx); l.Module != "" {
			o.Version = report.Version(l.Module)
		}
		all, errs = append(all, o), append(errs, err, o.Verdict())
	}
	text := fmt.Sprintf("%s, %s.\n\n%s\n`%s`\n", s.Server(), time.Now().UTC().Format(time.DateOnly), Table(all), s.Command)
	if err := errors.Join(errs...); err != nil || *page == "" {
		fmt.Fprint(out, text)
		return err
	}
	return report.Insert(*page, s.Store, text)
}

// Run runs the cases that match a pattern, and writes what failed.
func (l Library) Run(ctx context.Context, pattern string, progress io.Writer) (Outcome, error) {
	opts := []conformance.Option{conformance.WithOnly(pattern)}
	for _, name := range slices.Sorted(maps.Keys(l.LeftOut)) {
		opts = append(opts, conformance.WithSkip(name, l.LeftOut[name]))
	}
	o := Outcome{Library: l, Results: map[string]conformance.Result{}}
	done, err := conformance.Check(ctx, l.Harness, func(r conformance.Result) {
		if r.Outcome == conformance.Failed {
			why, _, _ := strings.Cut(r.Why, "\n") // a history has many lines
			fmt.Fprintf(progress, "%s: %s/%s failed: %s\n", l.Name, r.Group, r.Name, why)
		}
	}, opts...)
	for _, r := range done.Results {
		name := r.Group + "/" + r.Name
		ran := r.Outcome == conformance.Passed || r.Outcome == conformance.Failed
		if wanted, _ := regexp.MatchString(pattern, name); wanted && (ran || l.LeftOut[r.Name] != "") {
			o.Results[name] = r
		}
	}
	return o, cmp.Or(err, ctx.Err())
}

// Verdict wants no failure of ours, and a reason for each failure of another library.
func (o Outcome) Verdict() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.Results)) {
		if r := o.Results[name]; r.Outcome == conformance.Failed && o.Why[r.Name] == "" {
			errs = append(errs, fmt.Errorf("%s fails %s: want a pass, or a reason for the page", o.Name, name))
		}
	}
	return errors.Join(errs...)
}

// Table returns the part of the page about one store.
func Table(all []Outcome) string {
	names := map[string]string{}
	var same []string
	for _, o := range all {
		for name, r := range o.Results {
			names[name] = r.Contract
		}
	}
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		cells, differs := []string{"`" + name + "`: " + names[name]}, false
		for _, o := range all {
			word := cell(o.Results[name].Outcome)
			cells, differs = append(cells, word), differs || word != passes
		}
		if !differs {
			_, short, _ := strings.Cut(name, "/")
			same = append(same, "`"+short+"`")
			continue
		}
		fmt.Fprintf(&rows, "| %s |\n", strings.Join(cells, " | "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d cases pass with each library: %s.\n\nThe others:\n\n| case |", len(same), strings.Join(same, ", "))
	for _, o := range all {
		fmt.Fprintf(&b, " %s |", strings.TrimSpace(o.Name+" "+o.Version))
	}
	fmt.Fprintf(&b, "\n%s|\n%s\n", strings.Repeat("|---", len(all)+1), rows.String())
	for _, o := range all {
		b.WriteString(o.reasons("fails", o.Why, conformance.Failed))
		b.WriteString(o.reasons("is not run", o.LeftOut, conformance.Skipped))
	}
	return b.String()
}

const passes = "passes"

func cell(o conformance.Outcome) string {
	switch o {
	case conformance.Passed:
		return passes
	case conformance.Failed:
		return "**fails**"
	default:
		return "–"
	}
}

// reasons lists why, each reason once with its cases.
func (o Outcome) reasons(what string, why map[string]string, is conformance.Outcome) string {
	of := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Results)) {
		if r := o.Results[name]; r.Outcome == is {
			of[why[r.Name]] = append(of[why[r.Name]], "`"+r.Name+"`")
		}
	}
	var b strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "- **%s** %s: %s: %s\n", o.Name, what, strings.Join(of[reason], ", "), reason)
	}
	return b.String()
}
