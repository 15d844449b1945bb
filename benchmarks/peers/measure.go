package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker/benchmarks/internal/rig"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/bound"
)

// A setup is one thing to measure, of one contender after another.
type setup struct {
	label     string // distinguishes the setups of a scenario
	job       Job
	processes int           // 0 is one
	rtt       time.Duration // added to the round trip to the server
	masters   int           // 0 is one
	oneCore   bool          // for clients and server together, so that no core sleeps meanwhile
	hole      bool          // the last master goes silent before the workers begin
	settle    time.Duration // before counting begins; 0 is a quarter of the duration
	least     time.Duration // the measurement takes, whatever the duration asked for
}

// A sample is the result of one measurement of a contender.
type sample struct {
	setup                setup
	results              []Result
	empty, before, after info      // before the processes started; while sections were counted
	gaps                 []float64 // s, from an Unlock to the next grant of the same key
	overlaps             int
}

// measure runs a setup with a contender for so long.
func (b *bench) measure(ctx context.Context, s setup, contender string, d time.Duration) (out sample, err error) {
	n := max(s.masters, 1)
	b.start(n)
	for _, admin := range b.admins[:n] {
		if err := admin.FlushAll(ctx).Err(); err != nil {
			return out, err
		}
	}
	out.setup = s
	if out.empty, err = b.info(ctx); err != nil {
		return out, err
	}
	b.count++
	job := s.job
	job.Contender, job.Name, job.Addrs = contender, fmt.Sprint("bench", b.count), slices.Clone(b.addrs[:n])
	stage := &rig.Stage{}
	defer stage.End()
	silence, err := s.obstruct(ctx, stage, job.Addrs)
	if err != nil {
		return out, err
	}
	var by []string
	if s.oneCore {
		if by, err = pin(stage, b.pids[0]); err != nil {
			return out, err
		}
	}
	c, err := spawn(ctx, max(s.processes, 1), by...)
	if err != nil {
		return out, err
	}
	defer c.end()
	if _, err := call[struct{}](c, "Prepare", job); err != nil {
		return out, err
	}
	silence()
	d = max(d, s.least)
	if _, err := call[struct{}](c, "Run", cmp.Or(s.settle, d/4)); err != nil {
		return out, err
	}
	out.before, err = b.info(ctx)
	bound.Sleep(ctx, nil, d)
	var afterErr, stopErr error
	out.after, afterErr = b.info(ctx)
	out.results, stopErr = call[Result](c, "Stop", struct{}{})
	out.findGaps()
	return out, errors.Join(err, afterErr, stopErr)
}

// obstruct puts into addrs what lies on the way to the servers. The function returned
// makes the last server a hole, if the setup wants one.
func (s setup) obstruct(ctx context.Context, stage *rig.Stage, addrs []string) (silence func(), err error) {
	silence = func() {}
	if s.rtt > 0 {
		c, err := spawn(ctx, 1)
		if err != nil {
			return nil, err
		}
		stage.Cleanup(c.end)
		through, err := call[string](c, "Delay", Delay{addrs[0], s.rtt})
		addrs[0] = through[0]
		return silence, err
	}
	if s.hole {
		last := &addrs[len(addrs)-1]
		p := faultproxy.Start(stage, *last)
		p.Record(false)
		*last, silence = p.Addr(), func() { p.Blackhole(true) }
	}
	return silence, nil
}

// findGaps looks at the sections of each key in the order of their grants.
func (s *sample) findGaps() {
	var all []Section
	for _, r := range s.results {
		all = append(all, r.Sections...)
	}
	slices.SortFunc(all, func(a, b Section) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	for i := 1; i < len(all); i++ {
		if gap := all[i].Granted - all[i-1].Released; all[i].Key == all[i-1].Key {
			s.gaps = append(s.gaps, float64(gap)/1e9)
			if gap < 0 {
				s.overlaps++
			}
		}
	}
}

// trouble says what went wrong without ending the measurement, "" for nothing.
func (s *sample) trouble() (out string) {
	for _, r := range s.results {
		if r.Failed > 0 {
			out += fmt.Sprintf(" %d calls failed, the first: %s;", r.Failed, r.Error)
		}
		if r.Lost > 0 {
			out += fmt.Sprintf(" %d of %d locks held were lost;", r.Lost, s.setup.job.Held)
		}
	}
	if s.overlaps > 0 {
		out += fmt.Sprintf(" %d sections OVERLAPPED", s.overlaps)
	}
	return out
}
