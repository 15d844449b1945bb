//go:build unix

package report_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/report"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// subjects are setnx, and others with which something is wrong.
var subjects = []report.Subject{
	subject("setnx", func(h report.Held) report.Held { return h }),
	subject("never says lost", func(h report.Held) report.Held {
		h.Holds = func(context.Context) (bool, error) { return true, nil }
		return h
	}),
	subject("has no tokens", func(h report.Held) report.Held { h.Token = 0; return h }),
	{Name: "lets everybody in", Nodes: 1, Open: func(report.Target, time.Duration) (report.Client, error) {
		return func(context.Context, string) (report.Held, error) {
			return report.Held{
				Holds:  func(context.Context) (bool, error) { return true, nil },
				Unlock: func(context.Context) error { return nil },
			}, nil
		}, nil
	}},
}

func subject(name string, change func(report.Held) report.Held) report.Subject {
	return report.Subject{Name: name, Nodes: 1, Renews: true, Reports: true, Tokens: true, Open: func(t report.Target, ttl time.Duration) (report.Client, error) {
		l, err := setnx.New(redis.NewClient(&redis.Options{Addr: t.Addrs[0]}), locker.WithTTL(ttl))
		lock := report.Ours(l)
		return func(ctx context.Context, key string) (report.Held, error) {
			h, err := lock(ctx, key)
			if err != nil {
				return h, err
			}
			return change(h), nil
		}, err
	}}
}

func TestMain(m *testing.M) {
	report.Serve(subjects)
	m.Run()
}

// TestFinds: a case passes for setnx, and fails for a subject that breaks what it is about, for that reason.
func TestFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("a case takes some TTLs")
	}
	t.Parallel()
	for name, bug := range map[string]struct{ subject, want string }{
		"long":      {"lets everybody in", "want a holder that goes on"},
		"crash":     {},
		"pause":     {"has no tokens", "want each late write refused"},
		"partition": {"never says lost", "want one holder at a time"},
		"forget":    {"never says lost", "want a holder that learns of its loss"},
		"cut":       {"lets everybody in", "want sections that meet nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := report.Cases(report.Plain)
			c := cases[slices.IndexFunc(cases, func(c report.Case) bool { return c.Name == name })]
			of := subjects[:1]
			if bug.subject != "" {
				i := slices.IndexFunc(subjects, func(s report.Subject) bool { return s.Name == bug.subject })
				of = append(slices.Clip(of), subjects[i])
			}
			all := c.All(t.Context(), of, 2, 2)
			if name != "long" { // a busy machine may keep setnx from its renewals
				require.NoError(t, c.Verdict(all[:1]))
			}
			if bug.subject != "" {
				require.ErrorContains(t, c.Verdict(all[1:]), bug.want)
			}
			require.Contains(t, c.Section(all, "go run ."), "| setnx |")
		})
	}
}

// TestOfOthers: what another library does fails nothing, and stands on the page.
func TestOfOthers(t *testing.T) {
	t.Parallel()
	c := report.Cases(report.Plain)[3]
	other := subjects[1]
	other.Module = "example.com/other"
	all := []report.Outcome{{Subject: other, Next: time.Second, LastHeld: 3 * time.Second, End: 4 * time.Second}}
	require.NoError(t, c.Verdict(all))
	page := c.Section(all, "go run .")
	require.Contains(t, page, "**for more than 2.00 s**")
	require.Contains(t, page, "▓")
	all[0] = report.Outcome{Subject: other, SaidLost: time.Second, Nobody: true, End: 4 * time.Second}
	require.NoError(t, c.Verdict(all))
	require.Contains(t, c.Section(all, "go run ."), "**not within 12.00 s**")
	all[0].Failed = "no server"
	require.ErrorContains(t, c.Verdict(all), "no server")
}
