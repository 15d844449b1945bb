package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// table has a line for each row, and those who wait in turn below it.
func (f *inspectFlags) table(rows []row, now time.Time) string {
	if len(rows) == 0 {
		return "no lock is held\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tHELD AS\tHOLDER\tSINCE\tENDS IN\tHOLDS\tTOKEN\tWAITING")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shown(r.Key), r.as(), f.holder(r), since(r.Holder, now), endsIn(r.Holder), orDash(int64(r.Holds)), orDash(r.Token), orDash(int64(r.Waiting)))
		for _, h := range r.claims {
			fmt.Fprintf(w, "\t  %d\t%s\t%s\t%s\t\t\t\n", h.Permits, whom(h), since(h, now), endsIn(h))
		}
		for i, id := range r.Queue {
			fmt.Fprintf(w, "\t\t%d. %s\t\t\t\t\t\n", i+1, named(id, driver.MetadataOf(id)))
		}
	}
	_ = w.Flush()
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// since returns the column SINCE.
func since(h locker.Holder, now time.Time) string {
	if h.Since.IsZero() {
		return "-"
	}
	return max(0, now.Sub(h.Since)).Round(time.Second).String() + " ago"
}

// endsIn returns the column ENDS IN.
func endsIn(h locker.Holder) string {
	switch {
	case !h.Held:
		return "-"
	case h.Remaining >= 0:
		return h.Remaining.Round(100 * time.Millisecond).String()
	}
	return "never"
}

// as returns the column HELD AS.
func (r row) as() string {
	switch {
	case r.state == stateHeld && r.Limit > 0:
		return shares(r.Holder)
	case r.state == stateHeld:
		return r.Strategy
	}
	return r.state
}

// shares shows how many permits of a key are out, or how many a claim has.
func shares(h locker.Holder) string {
	switch {
	case h.Limit < locker.MaxPermits: // all that there can be are those of readers and writers
		return fmt.Sprintf("permits %d of %d", h.Permits, h.Limit)
	case h.Permits == h.Limit:
		return "exclusive"
	}
	return fmt.Sprintf("shared by %d", h.Permits)
}

// holder returns the column HOLDER.
func (f *inspectFlags) holder(r row) string {
	switch {
	case r.state == stateFree, r.Limit > 0 && r.ID == "":
		return "-"
	case r.state == stateUnknown:
		return onOneLine(r.why)
	case r.state == stateData && r.why != "":
		return r.why + ", which is no lock"
	case f.values && r.state != stateHeld && r.ID != "":
		return whom(r.Holder) + ": " + shown(r.ID)
	}
	return whom(r.Holder)
}

func orDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// whom shows a holder to people. The value of another program's key is not shown: it may be
// a secret.
func whom(h locker.Holder) string {
	switch stateOf(h) {
	case stateForeign:
		return "another program"
	case stateData:
		return "another program's data, which is no lock"
	}
	if h.Limit > 0 && h.ID == "" {
		return "those who have it (" + shares(h) + ")"
	}
	return named(h.Owner, h.Metadata)
}

// named shows an owner to people: what is known of the process before its id.
func named(owner string, metadata map[string]string) string {
	id := owner
	if driver.MetadataOf(owner) != nil {
		id, _, _ = strings.Cut(owner, "?")
	}
	if len(metadata) == 0 {
		return shown(id)
	}
	var all []string
	for name, value := range metadata {
		all = append(all, shown(name)+"="+shown(value))
	}
	slices.Sort(all)
	return strings.Join(all, " ") + " (" + shown(id) + ")"
}

// shown keeps what others have written from changing the screen.
func shown(s string) string {
	if q := strconv.Quote(s); len(s) > 100 || q != `"`+s+`"` || s == "" || strings.Contains(s, " ") {
		if len(s) > 100 {
			return strconv.Quote(s[:100]) + "..."
		}
		return q
	}
	return s
}

// onOneLine returns the text of an error on one line, for a table.
func onOneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// escaped is JSON without the characters that it allows and that change a screen: controls, and those that turn the text's direction.
func escaped(json string) string {
	var b strings.Builder
	for _, r := range json {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", u)
		}
	}
	return b.String()
}

// lookJSON is the output of --json.
type lookJSON struct {
	Time        time.Time       `json:"time"`
	Event       string          `json:"event,omitempty"` // of --watch
	Key         string          `json:"key,omitempty"`   // left out: it is about no key
	Held        *bool           `json:"held"`            // null: unknown
	State       string          `json:"state,omitempty"`
	Error       string          `json:"error,omitempty"`
	Strategy    string          `json:"strategy,omitempty"`
	Owner       text            `json:"owner,omitempty"`
	ID          text            `json:"id,omitempty"`
	Value       text            `json:"value,omitempty"` // of another program; with --values
	Metadata    map[string]text `json:"metadata,omitempty"`
	Since       *time.Time      `json:"since,omitempty"`
	RemainingMS *int64          `json:"remaining_ms,omitempty"` // left out: endless, or not held
	Holds       int             `json:"holds,omitempty"`
	Token       int64           `json:"token,omitempty"`
	Waiting     *int            `json:"waiting,omitempty"` // left out: unknown
	Queue       []text          `json:"queue,omitempty"`
	Permits     int             `json:"permits,omitempty"` // that are out, or that a claim has
	Limit       int             `json:"limit,omitempty"`   // how many there are
	Claims      []lookJSON      `json:"claims,omitempty"`  // who has them
}

// text is a JSON string, or an object with its bytes if it is not UTF-8.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return json.Marshal(map[string][]byte{"base64": []byte(t)})
	}
	return inOneLine(string(t)), nil
}

// inOneLine is JSON with a line's end. It leaves <, > and & as they are.
func inOneLine(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // never fails: strings, numbers and times of this age
	return b.Bytes()
}

// inJSON has a line for each row.
func (f *inspectFlags) inJSON(v view) string {
	var b strings.Builder
	for _, r := range v.rows {
		b.Write(inOneLine(f.rowInJSON(v.at, r)))
	}
	return escaped(b.String())
}

func (f *inspectFlags) rowInJSON(at time.Time, r row) lookJSON {
	j := lookJSON{Time: at, Key: r.Key, State: r.state, Error: r.why}
	if r.state == stateUnknown {
		return j
	}
	j.Held, j.Waiting = new(r.state == stateHeld || r.state == stateForeign), &r.Waiting
	if ms := r.Remaining.Milliseconds(); r.Held && r.Remaining >= 0 {
		j.RemainingMS = &ms
	}
	if r.state != stateHeld {
		if f.values {
			j.Value = text(r.ID)
		}
		return j
	}
	j.Strategy, j.Owner, j.ID, j.Holds, j.Token = r.Strategy, text(r.Owner), text(r.ID), r.Holds, r.Token
	if !r.Since.IsZero() {
		j.Since = &r.Since
	}
	for name, value := range r.Metadata {
		if j.Metadata == nil {
			j.Metadata = make(map[string]text)
		}
		j.Metadata[name] = text(value)
	}
	for _, id := range r.Queue {
		j.Queue = append(j.Queue, text(id))
	}
	j.Permits, j.Limit = r.Permits, r.Limit
	for _, h := range r.claims {
		claim := f.rowInJSON(at, r.of(h))
		claim.Waiting = nil
		j.Claims = append(j.Claims, claim)
	}
	return j
}
