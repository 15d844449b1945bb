//go:build unix

package report

import (
	"fmt"
	"strings"
)

// summary is one table of all cases: a row for each, a column for each subject.
func summary(cases []Case, subjects []Subject, results [][]Outcome) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range subjects {
		fmt.Fprintf(&b, " %s |", s.Name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(subjects)+1) + "\n")
	for i, c := range cases {
		fmt.Fprintf(&b, "| %s |", c.Title)
		of := map[string]string{}
		for _, o := range results[i] {
			of[o.Subject.Name] = c.word(o)
		}
		for _, s := range subjects {
			fmt.Fprintf(&b, " %s |", or(of[s.Name], "–"))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// word returns an outcome in a few words.
func (c Case) word(o Outcome) string {
	if o.Failed != "" {
		return "not run"
	}
	switch c.Shows {
	case timeline:
		if c.lost(o) {
			return bold(true, "lost")
		}
		return o.word()
	case Freed:
		if c.fine(o) {
			return "free at once"
		}
		return bold(true, "free after "+seconds(max(o.Next, o.Took)))
	case late:
		if o.Refused == o.Late {
			return fmt.Sprintf("%d of %d refused", o.Refused, o.Late)
		}
		return bold(true, fmt.Sprintf("%d of %d written", o.Late-o.Refused, o.Late))
	default:
		return bold(o.Counted.Overlaps > 0, fmt.Sprintf("%d overlaps", o.Counted.Overlaps))
	}
}

// word returns a timeline in a few words.
func (o Outcome) word() string {
	known := "known"
	if !o.Subject.Reports {
		known = "known when asked"
	}
	switch both := o.Both(); {
	case o.NoGrant != "":
		return "not granted"
	case both > 0:
		return bold(true, "two for "+seconds(both))
	case o.Nobody:
		return bold(true, "no next owner for "+seconds(Patience))
	case o.Next == 0:
		return "goes on"
	case o.Died:
		return "free after " + seconds(o.Next)
	case !o.Subject.Renews && o.Next > TTL*3/4:
		return "ends at its TTL"
	case o.SaidLost == 0:
		return "lost, no answer"
	default:
		return "lost, " + known
	}
}
