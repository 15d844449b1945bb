package peersuite

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// shelf is a lock library in memory. A careless one lets everybody in.
type shelf struct {
	careless bool
	mu       sync.Mutex
	taken    map[string]*time.Time
}

func (s *shelf) try(_ context.Context, c driver.Claim) (Lock, error) {
	key, ttl := c.Key, c.TTL
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.taken[key]; end != nil && time.Now().Before(*end) && !s.careless {
		return Lock{}, ErrTaken
	}
	end := time.Now().Add(ttl)
	mine := &end
	s.taken[key] = mine
	held := func(f func()) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[key] != mine || time.Now().After(*mine) {
			return driver.ErrLost
		}
		f()
		return nil
	}
	return Lock{
		Renew:   func(context.Context) error { return held(func() { *mine = time.Now().Add(ttl) }) },
		Release: func(context.Context) error { return held(func() { delete(s.taken, key) }) },
	}, nil
}

func (s *shelf) NewDriver() (driver.Driver, error) {
	return Driver("shelf", s.try, func() error { return nil }), nil
}

func (s *shelf) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "shelf"}
}

func library(name string, careless bool) Library {
	return Library{Name: name, Harness: conformance.OfDriver(func(testing.TB) conformance.DriverHarness {
		return &shelf{careless: careless, taken: map[string]*time.Time{}}
	})}
}

// TestFinds: a library that keeps its locks passes, and a careless one fails and needs a reason for the page.
func TestFinds(t *testing.T) {
	t.Parallel()
	const cases = "^exclusion/(AcquireRelease|RefusedTryHasNoEffect|IntervalsDisjoint)$"
	sound, err := library("sound", false).Run(t.Context(), cases, io.Discard)
	require.NoError(t, err)
	require.NoError(t, sound.Verdict())
	require.Len(t, sound.Results, 3)
	careless, err := library("careless", true).Run(t.Context(), cases, io.Discard)
	require.NoError(t, err)
	require.ErrorContains(t, careless.Verdict(), "careless fails exclusion/RefusedTryHasNoEffect")
	page := Table([]Outcome{sound, careless})
	require.Regexp(t, "`exclusion/RefusedTryHasNoEffect`: .* \\| passes \\| \\*\\*fails\\*\\* \\|", page)
	careless.Why = map[string]string{}
	for _, r := range careless.Results {
		careless.Why[r.Name] = "it is careless."
	}
	require.NoError(t, careless.Verdict())
	require.Contains(t, Table([]Outcome{sound, careless}), ": it is careless.\n")
}

// TestLeftOut: a case that does not apply is on the page with its reason.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	l := library("sound", false)
	l.LeftOut = map[string]string{"RapidCycles": "it needs a rest."}
	o, err := l.Run(t.Context(), "^exclusion/(AcquireRelease|RapidCycles)$", io.Discard)
	require.NoError(t, err)
	require.Contains(t, Table([]Outcome{o}), "1 cases pass with each library: `AcquireRelease`.")
	require.Contains(t, Table([]Outcome{o}), "- **sound** is not run: `RapidCycles`: it needs a rest.\n")
}

// TestUnknownClaims: a claim that was never granted is lost, and a lock is remembered until its release has had an answer.
func TestUnknownClaims(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	answers := []error{down, nil}
	d := Driver("shelf", func(context.Context, driver.Claim) (Lock, error) {
		return Lock{
			Renew:   func(context.Context) error { return nil },
			Release: func(context.Context) error { err := answers[0]; answers = answers[1:]; return err },
		}, nil
	}, func() error { return nil })
	c := driver.Claim{Key: "k", ID: "1", TTL: time.Second}
	require.ErrorIs(t, d.Release(t.Context(), c), driver.ErrLost)
	var renewed []error
	d.Renew(t.Context(), []driver.Claim{c}, func(_ int, err error) { renewed = append(renewed, err) })
	require.Equal(t, []error{driver.ErrLost}, renewed)
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.True(t, a.Granted)
	require.ErrorIs(t, d.Release(t.Context(), c), down)
	require.NoError(t, d.Release(t.Context(), c))
	require.ErrorIs(t, d.Release(t.Context(), c), driver.ErrLost)
}
