package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
)

// move is one rolling move of a fleet.
type move struct {
	rdb   *redis.Client
	url   string
	run   string
	steps []string
	phase time.Duration
	out   io.Writer

	fleet   []*worker
	reports []workerReport
}

type worker struct {
	*child.Child // nil: it was stopped
	strategy     string
	out          *json.Decoder
}

// roll starts n workers with the first strategy and restarts them one by one with
// the next, until all have the last.
func (m *move) roll(ctx context.Context, n int) error {
	m.run = fmt.Sprintf("swap:%d", time.Now().UnixNano())
	defer m.rdb.Del(context.WithoutCancel(ctx), m.run+":inside", m.run+":token")
	for range n {
		w, err := m.start(m.steps[0])
		if err != nil {
			return err
		}
		m.fleet = append(m.fleet, w)
	}
	if err := m.watch(ctx); err != nil {
		return err
	}
	for _, next := range m.steps[1:] {
		for i := range m.fleet {
			if err := m.stop(i); err != nil {
				return err
			}
			w, err := m.start(next)
			if err != nil {
				return err
			}
			m.fleet[i] = w
			if err := m.watch(ctx); err != nil {
				return err
			}
		}
	}
	for i := range m.fleet {
		if err := m.stop(i); err != nil {
			return err
		}
	}
	return m.report()
}

// watch lets the fleet work for a phase.
func (m *move) watch(ctx context.Context) error {
	var names []string
	for _, w := range m.fleet {
		names = append(names, w.strategy)
	}
	fmt.Fprintf(m.out, "running: %s\n", strings.Join(names, " "))
	return cli.Sleep(ctx, m.phase)
}

func (m *move) start(strategy string) (*worker, error) {
	c, err := child.Start(workerKind, workerConfig{Strategy: strategy, Redis: m.url, Run: m.run}, nil)
	if err != nil {
		return nil, err
	}
	w := &worker{c, strategy, json.NewDecoder(c)}
	var ready string
	if err := w.out.Decode(&ready); err != nil {
		return nil, fmt.Errorf("a worker with %s did not start: %w", strategy, errors.Join(err, w.Stop(0)))
	}
	return w, nil
}

// patience is how long a worker may take to end.
const patience = 15 * time.Second

// stop ends worker i and takes its report.
func (m *move) stop(i int) error {
	w := m.fleet[i]
	late := time.AfterFunc(patience, w.Kill)
	defer late.Stop()
	_ = w.Close()
	var r workerReport
	err := w.out.Decode(&r)
	if err = errors.Join(err, w.Wait()); err != nil {
		return fmt.Errorf("worker %d with %s: %w", i+1, w.strategy, err)
	}
	m.fleet[i] = &worker{strategy: "-"}
	m.reports = append(m.reports, r)
	return nil
}

// stopAll ends what is left after an error or Ctrl-C.
func (m *move) stopAll() {
	for _, w := range m.fleet {
		if w.Child != nil {
			_ = w.Stop(0)
		}
	}
}

func (m *move) report() error {
	t := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nSTRATEGY\tPROCESSES\tSECTIONS\tOVERLAPS\tTOKENS OUT OF ORDER\tLONGEST WAIT")
	var bad int
	for _, s := range m.steps {
		var sum workerReport
		processes := 0
		for _, r := range m.reports {
			if r.Strategy == s {
				processes++
				sum.Sections += r.Sections
				sum.Overlaps += r.Overlaps
				sum.OutOfOrder += r.OutOfOrder
				sum.LongestWaitMS = max(sum.LongestWaitMS, r.LongestWaitMS)
			}
		}
		bad += sum.Overlaps + sum.OutOfOrder
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d ms\n", s, processes, sum.Sections, sum.Overlaps, sum.OutOfOrder, sum.LongestWaitMS)
		if sum.Sections == 0 {
			return fmt.Errorf("no process with %s ever got the lock", s)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d sections were not alone or had a token out of order", bad)
	}
	fmt.Fprintln(m.out, "\nThe fleet was moved. No two sections overlapped, and every token was greater than the last.")
	return nil
}
