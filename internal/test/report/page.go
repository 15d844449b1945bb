//go:build unix

package report

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// offered shows what a subject offers, in a table.
func offered(yes bool, how string) string {
	if yes {
		return how
	}
	return "not offered"
}

// subjectsTable has what the subjects are.
func subjectsTable(subjects []Subject, commit string, version func(module string) string) string {
	var b strings.Builder
	b.WriteString("| | version | servers | renews | reports a loss | tokens | the holder asks by |\n|---|---|---|---|---|---|---|\n")
	for _, s := range subjects {
		v := commit
		if !s.Ours() {
			v = version(s.Module)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s |\n", s.Name, v, s.Nodes, offered(s.Renews, "yes"), offered(s.Reports, "yes"), offered(s.Tokens, "yes"), s.Check)
	}
	return b.String()
}

// seconds formats a time since the fault.
func seconds(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	if d < time.Millisecond {
		return "under 1 ms"
	}
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// line shows an outcome in a line, for whoever watches.
func (c Case) line(o Outcome) string {
	if o.Failed != "" {
		return "failed: " + o.Failed
	}
	return strings.Join(c.cells(o), "; ")
}

// columns returns the heads of a case's table.
func (c Case) columns() []string {
	switch c.Shows {
	case timeline:
		return []string{"the next owner has the lock", "the holder is answered \"lost\"", "both were let in"}
	case Freed:
		return []string{"the caller's Lock", "the next owner has the lock"}
	case late:
		return []string{"late writes", "refused by the token", "known to the holder after the pause"}
	default:
		return []string{"sections", "met another process", "the lock was lost, and the library said so at the end", "calls that failed"}
	}
}

// cells returns an outcome's row.
func (c Case) cells(o Outcome) []string {
	switch s := o.Subject; c.Shows {
	case timeline:
		return o.times()
	case Freed:
		if o.NoGrant != "" {
			return []string{"failed in " + seconds(o.Took), seconds(o.Next)}
		}
		return []string{"granted in " + seconds(o.Took), seconds(o.Next)}
	case late:
		return []string{fmt.Sprint(o.Late), offered(s.Tokens, fmt.Sprint(o.Refused)), fmt.Sprint(o.Noticed)}
	default:
		return []string{fmt.Sprint(o.Counted.Done), bold(o.Counted.Overlaps > 0, fmt.Sprint(o.Counted.Overlaps)), fmt.Sprint(o.Counted.Told), fmt.Sprint(o.Counted.Failed)}
	}
}

// times returns the cells of a timeline.
func (o Outcome) times() []string {
	if o.NoGrant != "" {
		return []string{"–", "–", "no: the lock was not granted"}
	}
	next, lost := seconds(o.Next), seconds(o.SaidLost)
	switch {
	case o.Died:
		lost = "–"
	case o.SaidLost == 0 && o.LastHeld < o.End-TTL/2:
		lost = "no answer"
	}
	if !o.Subject.Reports && !o.Died {
		lost = "not offered; when asked: " + lost
	}
	switch {
	case o.Nobody:
		next = bold(true, "not within "+seconds(Patience))
	case o.Next == 0:
		next = "never: the holder goes on"
	}
	both := "no"
	if d := o.Both(); d > 0 {
		both = "for " + seconds(d)
		if o.SaidLost == 0 {
			both = "for more than " + seconds(d)
		}
	}
	return []string{next, lost, bold(both != "no", both)}
}

func bold(yes bool, s string) string {
	if yes {
		return "**" + s + "**"
	}
	return s
}

// Section returns the part of the page about a case.
func (c Case) Section(all []Outcome, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", c.Title, c.Done)
	fmt.Fprintf(&b, "| | %s |\n|%s\n", strings.Join(c.columns(), " | "), strings.Repeat("---|", len(c.columns())+1))
	for _, o := range all {
		cells := c.cells(o)
		if o.Failed != "" {
			cells = []string{"not run: " + o.Failed}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", o.Subject.Name, strings.Join(cells, " | "))
	}
	if c.Shows == timeline {
		fmt.Fprintf(&b, "\n```text\n%s```\n", timelines(all))
	}
	b.WriteString(c.reasons(all))
	fmt.Fprintf(&b, "\n`%s -case %s`\n", command, c.Name)
	return b.String()
}

// reasons are why it broke, each once.
func (c Case) reasons(all []Outcome) string {
	of := map[string][]string{}
	var whys []string
	for _, o := range all {
		why := c.Why[o.Subject.Name]
		if why == "" || o.Failed != "" || c.fine(o) {
			continue
		}
		if of[why] == nil {
			whys = append(whys, why)
		}
		of[why] = append(of[why], o.Subject.Name)
	}
	var b strings.Builder
	for _, why := range whys {
		fmt.Fprintf(&b, "\n- **%s**: %s", strings.Join(of[why], "; "), why)
	}
	if len(whys) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// fine reports whether nothing broke: one holder at a time, and nobody waited for long, as for the TTL of a holder that died.
func (c Case) fine(o Outcome) bool {
	switch c.Shows {
	case timeline:
		return o.Both() == 0 && !o.Nobody && !c.lost(o) && (!o.Died || o.Next <= TTL)
	case Freed:
		return o.Next < TTL/2 && (o.NoGrant != "" || o.Took < TTL/2)
	case late:
		return o.Refused == o.Late
	default:
		return o.Counted.Overlaps == 0
	}
}

// lost reports whether a lock that nothing was done to had another holder, although its library renews it.
func (c Case) lost(o Outcome) bool { return c.Keeps && o.Subject.Renews && o.Next != 0 }

const (
	barWidth  = 66
	barBefore = TTL / 5 // of the picture is before the fault
)

// timelines draws who was let in, to one scale.
func timelines(all []Outcome) string {
	end := TTL
	width := 0
	for _, o := range all {
		end = max(end, o.Next+TTL/2, o.Both()+o.Next, o.SaidLost)
		width = max(width, len(o.Subject.Name))
	}
	at := func(d time.Duration) int {
		return max(0, min(barWidth, int(float64(d+barBefore)/float64(end+barBefore)*barWidth)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%*s           %*s│ fault; a column is %.2f s\n", width, "", at(0), "", (end+barBefore).Seconds()/barWidth)
	for _, o := range all {
		if o.Failed != "" || o.NoGrant != "" {
			continue
		}
		until := at(o.LastHeld)
		if o.Died {
			until = at(0)
		}
		holder, next := bar(at(o.Granted), until, at(0), '█'), bar(barWidth, barWidth, at(0), '█')
		if o.Next != 0 {
			next = bar(at(o.Next), barWidth, at(0), '█')
			if o.Both() > 0 {
				copy(next[at(o.Next):max(until, at(o.Next)+1)], []rune(strings.Repeat("▓", barWidth)))
			}
		}
		fmt.Fprintf(&b, "%-*s  holder   %s\n%*s  next     %s\n", width, o.Subject.Name, trim(holder), width, "", trim(next))
	}
	return b.String()
}

// bar has marks from one column to another, and one where the fault is.
func bar(from, to, fault int, mark rune) []rune {
	line := []rune(strings.Repeat(" ", barWidth))
	for i := from; i < min(to, barWidth); i++ {
		line[i] = mark
	}
	if line[fault] == ' ' {
		line[fault] = '│'
	}
	return line
}

func trim(line []rune) string { return strings.TrimRight(string(line), " ") }

// Insert writes text between two marks of a page.
func Insert(page, store, text string) error {
	begin, end := "<!-- by make report: "+store+" -->\n", "<!-- end of "+store+" -->"
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no %q with %q after it", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+text+end+after), 0o644)
}
