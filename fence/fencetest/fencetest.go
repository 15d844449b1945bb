// Package fencetest checks what every fence.Guard keeps, with a case for each way to get it
// wrong that we know of.
//
//	func TestMyGuard(t *testing.T) {
//		fencetest.Run(t, func(tb testing.TB) fence.Guard { return newMyGuard(tb) })
//	}
//
// It imports the standard library and package fence only.
package fencetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker/fence"
)

// Resource is a Guard with values behind it, each of which is written in the step that compares the
// token. A Guard given to [Run] that is a Resource is checked for that, too.
type Resource interface {
	fence.Guard
	// Write sets the value of key if token is admitted.
	Write(ctx context.Context, key string, token int64, value string) error
	// Read returns the value of key, "" if there is none.
	Read(ctx context.Context, key string) (string, error)
}

// Run runs every case with a Guard of newGuard. The Guards may share a store, and the store
// need not be empty: each case makes up its keys. A Guard has a minute for a case, and each case asks it up to
// a thousand times, from 8 goroutines at most.
func Run(t *testing.T, newGuard func(testing.TB) fence.Guard) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.check(&subject{ctx: ctx, guard: newGuard(t), base: rand.Text()}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range resourceCases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			guard := newGuard(t)
			resource, ok := guard.(Resource)
			if !ok {
				t.Skip("the Guard is no Resource")
			}
			if err := c.check(&subject{ctx: ctx, guard: guard, resource: resource, base: rand.Text()}); err != nil {
				t.Error(err)
			}
		})
	}
}

type testCase struct {
	name  string
	check func(*subject) error
}

// cases name what goes wrong where they fail.
var cases = []testCase{
	{"EqualTokenAgain", equalAgain},          // < for <=: the second write of a section is refused
	{"SmallerIsStale", smallerIsStale},       // no comparison, or a wrong error
	{"RefusedLeavesNoTrace", refusedNoTrace}, // the last token is kept instead of the greatest
	{"ComparedAsNumbers", comparedAsNumbers}, // tokens compared as text: "9" > "10"
	{"UnsetToken", unsetToken},               // 0 let through, as the zero value of a struct
	{"LargeTokens", largeTokens},             // 32 bits, or a floating-point number
	{"KeysApart", keysApart},                 // keys that are trimmed, folded, cut off, matched
	{"BadKeys", badKeys},                     // no key, or one that is too long, let through
	{"AtTheSameTime", atTheSameTime},         // read, compare and write in three steps
	{"LaterIsStale", laterIsStale},           // a smaller one after a greater one was admitted, in a race
}

var resourceCases = []testCase{
	{"LateWrite", lateWrite},                     // the write goes past the check
	{"WriteAfterAdmit", writeAfterAdmit},         // Write has another memory than Admit
	{"WritesAtTheSameTime", writesAtTheSameTime}, // check and write in two transactions
}

// A realistic token: microseconds since 1970.
const now = int64(1_795_396_689_355_718)

// subject is the Guard of a case, with keys that begin with base.
type subject struct {
	ctx      context.Context
	guard    fence.Guard
	resource Resource
	base     string
}

// step is one Admit, and what should come of it.
type step struct {
	token int64
	want  error // nil, or what the error matches
}

func (s *subject) admits(key string, steps ...step) error {
	for i, step := range steps {
		err := s.guard.Admit(s.ctx, key, step.token)
		if err := expect(err, step.want); err != nil {
			return fmt.Errorf("key %s, call %d of %v, Admit(%d): %w", fence.Quote(key), i+1, tokens(steps), step.token, err)
		}
	}
	return nil
}

func expect(err, want error) error {
	switch {
	case !errors.Is(err, want):
		return fmt.Errorf("want %w, got %w", orNil(want), orNil(err))
	case err != nil && errors.Is(err, fence.ErrStale) && errors.Is(err, fence.ErrInvalid):
		return fmt.Errorf("want an error that matches %w alone, got %w", want, err)
	}
	return nil
}

var errNil = errors.New("<nil>")

func orNil(err error) error {
	if err == nil {
		return errNil
	}
	return err
}

func tokens(steps []step) (all []int64) {
	for _, s := range steps {
		all = append(all, s.token)
	}
	return all
}

func equalAgain(s *subject) error {
	return s.admits(s.base, step{now, nil}, step{now, nil}, step{now, nil}, step{now + 1, nil}, step{now + 1, nil})
}

func smallerIsStale(s *subject) error {
	return s.admits(s.base, step{now, nil}, step{now - 1, fence.ErrStale}, step{1, fence.ErrStale}, step{now, nil},
		step{now + 5, nil}, step{now + 4, fence.ErrStale}, step{now, fence.ErrStale})
}

func refusedNoTrace(s *subject) error {
	return s.admits(s.base, step{now, nil}, step{now - 10, fence.ErrStale}, step{now - 5, fence.ErrStale}, step{now, nil})
}

func comparedAsNumbers(s *subject) error {
	return errors.Join(
		s.admits(s.base+"1", step{9, nil}, step{10, nil}, step{9, fence.ErrStale}, step{100, nil}, step{99, fence.ErrStale}),
		s.admits(s.base+"2", step{999_999_999_999_999, nil}, step{1_000_000_000_000_000, nil}, step{999_999_999_999_999, fence.ErrStale}),
	)
}

func unsetToken(s *subject) error {
	unset := []step{{0, fence.ErrInvalid}, {-1, fence.ErrInvalid}, {-now, fence.ErrInvalid}, {math.MinInt64, fence.ErrInvalid}}
	return errors.Join(
		s.admits(s.base+"new", append(unset, step{1, nil})...),
		s.admits(s.base+"known", append(append([]step{{now, nil}}, unset...), step{now - 1, fence.ErrStale}, step{now, nil})...),
	)
}

func largeTokens(s *subject) error {
	ascending := []int64{
		math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
		now, now + 1, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64,
	}
	var steps []step
	for i, token := range ascending {
		if steps = append(steps, step{token, nil}); i > 0 {
			steps = append(steps, step{ascending[i-1], fence.ErrStale}, step{token - 1, fence.ErrStale})
		}
	}
	return s.admits(s.base, steps...)
}

// keysApart gives each key a smaller token than the one before it: two keys that are one to the
// Guard are found by a refusal. Then each key has to know its own.
func keysApart(s *subject) error {
	long := func(end string) string { return s.base + strings.Repeat("x", fence.MaxKey-len(s.base)-len(end)) + end }
	var keys []string
	for _, end := range []string{
		"a", "A", "a ", " a", "a  ", "a\t", "a\n", "a\x00", "a\x00b", "\x00a", "aa", "ab", "a/", "a:", "a%", "a_", "a*", "a'", `a"`, `a\`, "a;--",
		"{a}", "{a}a", "a}{", "}", "{}", "{", "ä", "a\u0308", "Ä", "ß", "ss", "\xff", "\xfe", "\xc3", "null", "0", "00", "1", "1.0", "😀", "😁",
	} {
		keys = append(keys, s.base+end)
	}
	keys = append(keys, s.base, strings.ToLower(s.base), long("a"), long("b"), long("A"), long("a")[:fence.MaxKey-1])
	for _, n := range []int{64, 128, 190, 255, 256, 767, 1024, 2704, 3072, 4096, 8191} { // where stores cut off
		keys = append(keys, long("")[:n]+"a", long("")[:n]+"b")
	}
	for i, key := range keys {
		if err := s.admits(key, step{now - int64(i), nil}); err != nil {
			return fmt.Errorf("as if it were one of those before it: %w", err)
		}
	}
	for i, key := range keys {
		if err := s.admits(key, step{now - int64(i) - 1, fence.ErrStale}); err != nil {
			return err
		}
	}
	return nil
}

func badKeys(s *subject) error {
	return errors.Join(
		s.admits("", step{now, fence.ErrInvalid}),
		s.admits(s.base+strings.Repeat("x", fence.MaxKey), step{now, fence.ErrInvalid}),
	)
}

// Rounds of a race, and who takes part.
const rounds, racers = 15, 8

// race calls f at the same time for each of some tokens, greater ones in each round. In
// each round the order in which they begin differs.
func (s *subject) race(f func(round int, token int64) error, after func(round int, greatest int64) error) error {
	for round := range rounds {
		greatest := now + int64(round*racers+racers-1)
		errs := make([]error, racers)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range racers {
			all.Go(func() {
				<-start
				errs[i] = f(round, greatest-int64((i+round)%racers))
			})
		}
		close(start)
		all.Wait()
		if err := errors.Join(append(errs, after(round, greatest))...); err != nil {
			return fmt.Errorf("round %d of %d at the same time: %w", round+1, racers, err)
		}
	}
	return nil
}

// atTheSameTime: whatever the order, the greatest is admitted and is what counts afterwards. Each
// round has a key of its own, so that it is about the first token of a key, and all use a second one.
func atTheSameTime(s *subject) error {
	fresh := func(round int) string { return s.base + "fresh" + strconv.Itoa(round) }
	return s.race(func(round int, token int64) error {
		for _, key := range []string{s.base, fresh(round)} {
			err := s.guard.Admit(s.ctx, key, token)
			if greatest := now + int64(round*racers+racers-1); err != nil && (token == greatest || !errors.Is(err, fence.ErrStale)) {
				return fmt.Errorf("Admit(%d): %w", token, err)
			}
		}
		return nil
	}, func(round int, greatest int64) error {
		return errors.Join(
			s.admits(s.base, step{greatest - 1, fence.ErrStale}, step{greatest, nil}),
			s.admits(fresh(round), step{greatest - 1, fence.ErrStale}, step{greatest, nil}),
		)
	})
}

// laterIsStale: no token is admitted by a call that began after a greater one's had returned.
func laterIsStale(s *subject) error {
	var admitted atomic.Int64
	return s.race(func(_ int, token int64) error {
		for _, token := range []int64{token, token - 1, token} {
			before := admitted.Load()
			err := s.guard.Admit(s.ctx, s.base, token)
			if err == nil && token < before {
				return fmt.Errorf("Admit(%d) began after %d was admitted: want %w, got nil", token, before, fence.ErrStale)
			} else if err != nil && !errors.Is(err, fence.ErrStale) {
				return fmt.Errorf("Admit(%d): %w", token, err)
			}
			for old := admitted.Load(); err == nil && old < token && !admitted.CompareAndSwap(old, token); old = admitted.Load() {
			}
		}
		return nil
	}, func(int, int64) error { return nil })
}
