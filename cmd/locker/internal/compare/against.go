package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Against is a comparison with an earlier one.
type Against struct {
	Lines []string
	Worse bool // something is worse outside the noise, by more than the threshold
	table [][]string
}

// earlier has the fields of an earlier Result that are compared.
type earlier struct {
	Schema     int
	Machine    string
	Load       Load
	BoutS      float64 `json:"contended_run_s"`
	Strategies []struct {
		Name, Store string
		Figures     map[string]*Figure
	}
}

// byLength are the metrics that depend on how long a contended run is.
var byLength = []string{"longest", "share"}

func readEarlier(old io.Reader) (e earlier, err error) {
	if err := json.NewDecoder(old).Decode(&e); err != nil {
		return e, fmt.Errorf("%w: it is no JSON of locker compare: %w", ErrUsage, err)
	}
	if e.Schema != schema {
		return e, fmt.Errorf("%w: its schema is %d, and this locker reads %d", ErrUsage, e.Schema, schema)
	}
	return e, nil
}

// CheckEarlier returns an error if text is not the JSON of an earlier comparison.
func CheckEarlier(text []byte) error {
	_, err := readEarlier(bytes.NewReader(text))
	return err
}

// Against compares with the JSON of an earlier comparison. threshold is a share, such as 0.1.
func (r *Result) Against(old io.Reader, threshold float64) (*Against, error) {
	e, err := readEarlier(old)
	if err != nil {
		return nil, err
	}
	a := &Against{}
	if e.Machine != r.Machine {
		a.Lines = append(a.Lines, "The machines differ: "+e.Machine+" then, "+r.Machine+" now.")
	}
	work := metric{fewest: 1}
	if c := work.compared(r.Load.Calibration, e.Load.Calibration, changed); c.better || c.worse {
		a.Lines = append(a.Lines, fmt.Sprintf("The machine itself differs: a constant piece of work took %s ms then, %s ms now.", e.Load.Calibration.text(), r.Load.Calibration.text()))
	}
	same := func(string) bool { return true } // whether figures of a metric can be compared
	if e.BoutS != r.BoutS {
		a.Lines = append(a.Lines, fmt.Sprintf("There were contended runs of %v then, %v now: the longest waits and the shares are not compared.", seconds(e.BoutS), seconds(r.BoutS)))
		same = func(id string) bool { return !slices.Contains(byLength, id) }
	}
	for _, was := range e.Strategies {
		i := slices.IndexFunc(r.Strategies, func(s *Strategy) bool { return s.Name == was.Name })
		if i < 0 {
			a.Lines = append(a.Lines, was.Name+" was measured then, and is not now.")
			continue
		}
		if now := r.Strategies[i].Store; now != was.Store {
			a.Lines = append(a.Lines, was.Name+" was on "+was.Store+" then, and is on "+now+" now.")
		}
		a.add(r.Strategies[i], was.Figures, threshold, same)
	}
	return a, nil
}

// add compares the figures of a strategy.
func (a *Against) add(s *Strategy, was map[string]*Figure, threshold float64, same func(id string) bool) {
	for _, m := range metrics {
		now, then, title := s.Figures[m.id], was[m.id], strings.TrimPrefix(m.title, "… ")
		if then != nil && now == nil {
			a.Lines = append(a.Lines, s.Name+", "+title+": measured then, and not now.")
		}
		if now == nil || then == nil || !same(m.id) {
			continue
		}
		c := m.compared(now, then, changed)
		verdict := "~ (" + c.why + ")"
		if c.better || c.worse {
			change := now.Median/then.Median - 1
			verdict = fmt.Sprintf("%s, %s (p=%.1g)", percents(change), map[bool]string{true: "better", false: "worse"}[c.better], c.p)
			if c.worse && math.Abs(change) > threshold {
				a.Worse = true
				verdict += ", more than the threshold"
			}
		}
		a.table = append(a.table, []string{s.Name, title, then.median(), now.median() + " " + m.unit, verdict})
	}
}

// percents shows a change.
func percents(change float64) string {
	if math.IsInf(change, 0) {
		return "from 0"
	}
	return fmt.Sprintf("%+.0f %%", 100*change)
}

// Text is for a terminal.
func (a *Against) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STRATEGY\tFIGURE\tTHEN\tNOW\tCHANGE")
	for _, line := range a.table {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	_ = w.Flush()
	for _, line := range a.Lines {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}
