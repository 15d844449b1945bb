package leader_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
)

// howMany returns how many terms there are at least, and how short they are. Observers look twice in that time. For figures:
//
//	LOCKER_LEADER_TERMS=1000 go test -v -parallel 3 -run ObserveInAnotherProcess ./adapters/leader
func howMany(t *testing.T) (n int, shortest time.Duration, figures bool) {
	t.Helper()
	set := os.Getenv("LOCKER_LEADER_TERMS")
	if set == "" {
		return 30, 50 * time.Millisecond, false
	}
	n, err := strconv.Atoi(set)
	require.NoError(t, err)
	return n, 200 * time.Millisecond, true
}

type electionSpec struct {
	Strategy, Addr, Key, Name string
	Shortest                  time.Duration // term
}

// serve calls f with an Elector of the process, and a context that ends with the process's input.
func (s electionSpec) serve(p child.Parent, f func(context.Context, *leader.Elector) error) error {
	ctx, stop := p.Context()
	defer stop()
	e, release, err := s.elector()
	if err != nil {
		return err
	}
	defer release()
	return f(ctx, e)
}

func (s electionSpec) elector() (e *leader.Elector, release func(), err error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	l, err := strategies[s.Strategy](rdb)
	if err != nil {
		return nil, nil, err
	}
	e, err = leader.New(l, s.Key, leader.WithIdentity(s.Name, "at "+s.Name), leader.WithMinTerm(s.Shortest),
		leader.WithBackoff(time.Millisecond, 2*time.Millisecond))
	return e, func() { _ = errors.Join(l.Close(), rdb.Close()) }, err
}

// steppingDown is a process that stands for election until its input ends, and for one term more. It prints each of its
// terms, and steps down at once: the term lasts as long as the shortest.
func steppingDown(p child.Parent, spec electionSpec) error {
	return spec.serve(p, func(ctx context.Context, e *leader.Elector) error {
		// A lock that is granted while its context ends is a term to those that observe, and none to its leader.
		return e.Run(context.WithoutCancel(ctx), func(_ context.Context, token int64) error {
			fmt.Fprintf(p, "%d %s at %s\n", token, spec.Name, spec.Name)
			if ctx.Err() != nil {
				return nil
			}
			return leader.ErrSteppedDown
		})
	})
}

// observing is a process that prints what it observes, until its input ends: a term, "nobody", or "late".
func observing(p child.Parent, spec electionSpec) error {
	return spec.serve(p, func(ctx context.Context, e *leader.Elector) error {
		for term, err := range e.Observe(ctx) {
			switch {
			case errors.Is(err, locker.ErrUnavailable):
				fmt.Fprintln(p, "late")
			case err != nil:
				return err
			case term.Vacant():
				fmt.Fprintln(p, "nobody")
			default:
				fmt.Fprintf(p, "%d %s %s\n", term.Token, term.Identity, term.Payload)
			}
		}
		return nil
	})
}

// startOne starts a process, whose lines come by the channel.
func startOne(t *testing.T, kind string, spec electionSpec) (*child.Child, <-chan string) {
	t.Helper()
	c, err := child.Start(kind, spec, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop(10 * time.Second) })
	lines := make(chan string, 100_000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(c); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return c, lines
}

// next returns the next line.
func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line, ok := <-lines:
		require.True(t, ok, "the process has ended")
		return line
	case <-time.After(time.Minute):
		require.Fail(t, "no line within a minute")
	}
	return ""
}

// token is that of a line about a term; 0 of another line.
func token(line string) int64 {
	number, _, _ := strings.Cut(line, " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}

// byToken returns what candidates have printed, in the order of the tokens.
func byToken(says ...<-chan string) (all []string) {
	for _, lines := range says {
		for line := range lines {
			all = append(all, line)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(token(a), token(b)) })
	return all
}

// requireObserved fails unless an observer has seen the terms in their order, none twice, and missed none of them without
// saying so: it has said "late" before it went on with the present term. It returns how many it missed so.
func requireObserved(t *testing.T, terms, seen []string) (missed int) {
	t.Helper()
	at, said := 0, false // terms[:at] are done with
	for i, line := range seen {
		switch {
		case line == "late":
			said = true
			continue
		case line == "nobody":
			continue
		case said && at > 0 && line == terms[at-1]: // the present term comes whether or not it has changed
		default:
			from := at
			for at < len(terms) && terms[at] != line {
				at++
			}
			require.Less(t, at, len(terms), "line %d, %q, is no term, or comes twice or too late", i, line)
			if missed += at - from; !said {
				require.Equal(t, from, at, "%d terms are missing without a word before %q: %q", at-from, line, terms[from:at])
			}
			at++
		}
		said = false
	}
	if missed += len(terms) - at; !said {
		require.Len(t, terms, at, "the last terms are missing without a word")
	}
	return missed
}

// election has two processes that lead in turn, each as shortly as can be, and a third one that observes.
type election struct {
	spec                       electionSpec
	ann, bob, observer         *child.Child
	annSays, bobSays, observed <-chan string
	seen                       []string
}

func elect(t *testing.T, strategy string, shortest time.Duration) *election {
	t.Helper()
	e := &election{spec: electionSpec{Strategy: strategy, Addr: redistest.Shared(t).Addr(), Key: t.Name(), Shortest: shortest}}
	of := func(name string) electionSpec { e.spec.Name = name; return e.spec }
	e.observer, e.observed = startOne(t, "observing", of("observer"))
	require.Equal(t, "nobody", next(t, e.observed))
	e.ann, e.annSays = startOne(t, "stepping down", of("ann"))
	e.bob, e.bobSays = startOne(t, "stepping down", of("bob"))
	return e
}

// see goes on until the observer has seen n terms more, and returns the last one.
func (e *election) see(t *testing.T, n int) (last string) {
	t.Helper()
	for n > 0 {
		last = next(t, e.observed)
		e.seen = append(e.seen, last)
		if token(last) > 0 {
			n--
		}
	}
	return last
}

// end ends the election by a last leader, who leads until the observer has seen it, and returns all terms.
func (e *election) end(t *testing.T) (terms []string) {
	t.Helper()
	require.NoError(t, e.ann.Stop(time.Minute))
	require.NoError(t, e.bob.Stop(time.Minute))
	terms = byToken(e.annSays, e.bobSays)
	e.spec.Name = "the end"
	last, release, err := e.spec.elector()
	require.NoError(t, err)
	defer release()
	require.NoError(t, last.Run(t.Context(), func(_ context.Context, token int64) error {
		terms = append(terms, fmt.Sprintf("%d the end at the end", token))
		for e.see(t, 1) != terms[len(terms)-1] {
		}
		return nil
	}))
	return terms
}

// Two processes lead in turn; a third one observes each term in its order, and none twice. The leaders do not wait
// for it. If the machine stands still for half of a term, the observer says that it may have missed one; with
// LOCKER_LEADER_TERMS that is a failure, too.
func TestObserveInAnotherProcess(t *testing.T) {
	n, shortest, figures := howMany(t)
	for name := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := elect(t, name, shortest)
			e.see(t, n)
			terms := e.end(t)
			missed := requireObserved(t, terms, e.seen)
			t.Logf("%s: %d terms, %d of them missed, with a word", name, len(terms), missed)
			if figures {
				require.Zero(t, missed)
			}
		})
	}
}
