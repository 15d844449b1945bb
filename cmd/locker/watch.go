package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/spf13/cobra"
)

// The events of inspect --watch, beside the states of keys, as which the first look reports them.
const (
	eventGranted  = "granted"
	eventReleased = "released"
	eventLost     = "lost"    // its time was over, and it had not been renewed for long
	eventGone     = "gone"    // it is not known how it ended
	eventWaiting  = "waiting" // the number of those who wait has changed
	eventAway     = "away"    // the store cannot be asked: nothing is known
	eventBack     = "back"
	eventWatching = "watching" // the first look is over
)

// event describes a change between two looks.
type event struct {
	at   time.Time
	what string
	row  row    // none for away, back and watching
	why  string // of away
	held int    // locks, for back and watching
}

// watcher finds the events.
type watcher struct {
	f     *inspectFlags
	begun bool
	away  bool           // the store could not be asked at the last look
	gap   bool           // nor at one since seen
	seen  time.Time      // of the last answer
	rows  map[string]row // as they were then
	most  map[string]time.Duration
}

// watchLocks looks again and again, and prints the events.
func (f *inspectFlags) watchLocks(ctx context.Context, c *cobra.Command, a *locker.Client, args []string) error {
	w := &watcher{f: f}
	for {
		v := f.view(ctx, a, args)
		v.done = time.Now()
		switch {
		case ctx.Err() != nil:
			return &exit{code: exitInterrupted}
		case errors.Is(v.err, locker.ErrInvalid): // no later look is better
			return f.storeError(v.err)
		}
		if err := write(ctx, c.OutOrStdout(), f.lines(w.look(v))); err != nil {
			return err
		}
		if !bound.Sleep(ctx, nil, f.every) {
			return &exit{code: exitInterrupted}
		}
	}
}

// look returns what has changed since the last look.
func (w *watcher) look(v view) (all []event) {
	add := func(what string, r row) { all = append(all, event{at: v.at, what: what, row: r}) }
	why := w.f.trouble(v)
	away := why != ""
	switch {
	case away && !w.away:
		all = append(all, event{at: v.at, what: eventAway, row: row{Holder: locker.Holder{Key: v.key}, state: stateUnknown}, why: why})
	case !away && w.away && w.begun:
		all = append(all, event{at: v.at, what: eventBack, held: v.held()})
	}
	w.away = away
	if v.err != nil {
		w.gap = true
		return all
	}
	now, most := make(map[string]row), make(map[string]time.Duration)
	for _, r := range v.rows {
		was, known := w.rows[r.Key]
		if r.state == stateUnknown { // as it was, as far as is known
			if known {
				now[r.Key] = was
			}
			continue
		}
		w.changes(add, v.done, was, r)
		now[r.Key] = r
	}
	for _, key := range keysOf(w.rows) {
		if _, still := now[key]; !still {
			w.changes(add, v.done, w.rows[key], row{Holder: locker.Holder{Key: key}, state: stateFree})
		}
	}
	for _, r := range now {
		for _, h := range r.holders() {
			most[h.ID] = max(w.most[h.ID], h.Remaining)
		}
	}
	if !w.begun && !away {
		w.begun = true
		all = append(all, event{at: v.at, what: eventWatching, held: v.held()})
	}
	w.rows, w.most, w.seen, w.gap = now, most, v.at, away
	return all
}

// changes adds the events of a key.
func (w *watcher) changes(add func(string, row), done time.Time, was, r row) {
	before, after := was.holders(), r.holders()
	for _, h := range before {
		if !has(after, h) {
			add(w.ended(done, was, h), was.of(h))
		}
	}
	for _, h := range after {
		switch {
		case has(before, h):
		case !w.begun || r.state != stateHeld:
			add(r.state, r.of(h))
		default:
			add(eventGranted, r.of(h))
		}
	}
	switch {
	case r.state == stateFree && (!w.begun || was.state == stateData):
		add(stateFree, r)
	case r.state == stateData && was.state != stateData:
		add(stateData, r)
	}
	if r.Waiting != was.Waiting {
		add(eventWaiting, r)
	}
}

// ended returns how a holder that is there no more has ended, as far as that can be known.
func (w *watcher) ended(done time.Time, was row, h locker.Holder) string {
	switch over := h.Remaining >= 0 && h.Remaining <= done.Sub(w.seen); {
	case w.gap || was.state != stateHeld:
		return eventGone
	case !over:
		return eventReleased
	case h.Remaining < w.most[h.ID]/2: // each holder that is well has more left: it renews after a third
		return eventLost
	}
	return eventGone
}

// holders returns the holders of a key: one, or those who have permits of it.
func (r row) holders() []locker.Holder {
	switch {
	case len(r.claims) > 0:
		return r.claims
	case r.state == stateHeld || r.state == stateForeign:
		return []locker.Holder{r.Holder}
	}
	return nil
}

// of returns the row of one holder.
func (r row) of(h locker.Holder) row {
	r.Holder, r.claims = h, nil
	return r
}

func has(all []locker.Holder, h locker.Holder) bool {
	return slices.ContainsFunc(all, func(o locker.Holder) bool { return o.ID == h.ID && o.Strategy == h.Strategy })
}

func keysOf(rows map[string]row) (keys []string) {
	for key := range rows {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// lines has a line for each event.
func (f *inspectFlags) lines(events []event) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range events {
		if f.json {
			_, _ = w.Write(inOneLine(f.eventInJSON(e)))
			continue
		}
		fmt.Fprintf(w, "%s\t%-8s", e.at.Format("2006-01-02 15:04:05.000"), e.what)
		if e.row.Key != "" {
			fmt.Fprintf(w, "\t%s", shown(e.row.Key))
		}
		if about := f.about(e); about != "" {
			fmt.Fprintf(w, "\t%s", about)
		}
		fmt.Fprintln(w)
	}
	if f.json {
		_ = w.Flush()
		return escaped(b.String())
	}
	_ = w.Flush()
	return b.String()
}

// about returns an event's text for people.
func (f *inspectFlags) about(e event) string {
	r := e.row
	switch e.what {
	case eventAway:
		return "unknown: " + onOneLine(e.why)
	case eventBack, eventWatching:
		return map[bool]string{true: "1 lock is held", false: fmt.Sprint(e.held, " locks are held")}[e.held == 1]
	case eventWaiting:
		return map[bool]string{true: "1 waits", false: fmt.Sprint(r.Waiting, " wait")}[r.Waiting == 1]
	case stateFree:
		return ""
	case stateData:
		return f.holder(r)
	}
	about := f.holder(r)
	if r.state == stateHeld {
		about = r.as() + "\t" + about
	}
	if ended := e.what == eventReleased || e.what == eventLost || e.what == eventGone; ended && !r.Since.IsZero() {
		return about + ", after " + max(0, e.at.Sub(r.Since)).Round(100*time.Millisecond).String()
	}
	if r.Token != 0 {
		about += fmt.Sprint(", token ", r.Token)
	}
	return about
}

// eventInJSON returns an event for --json. "held" is as it is after the event.
func (f *inspectFlags) eventInJSON(e event) lookJSON {
	switch e.what {
	case eventAway:
		return lookJSON{Time: e.at, Event: e.what, Key: e.row.Key, State: stateUnknown, Error: e.why}
	case eventBack, eventWatching:
		return lookJSON{Time: e.at, Event: e.what, Held: new(e.held > 0)}
	}
	j := f.rowInJSON(e.at, e.row)
	j.Event = e.what
	if e.what == eventReleased || e.what == eventLost || e.what == eventGone {
		j.Held, j.State, j.RemainingMS, j.Waiting = new(false), stateFree, nil, nil
	}
	return j
}
