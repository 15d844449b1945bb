package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A setup is one thing to measure, of one contender after another.
type setup struct {
	label     string // tells the setups of a scenario apart: what grows
	x         float64
	job       Job
	processes int           // 0 is one
	rtt       time.Duration // added to the round trip to the server
	masters   int           // 0 is one
	hole      bool          // the last master goes silent before the workers begin
	settle    time.Duration // before counting begins; 0 is a quarter of the duration
	least     time.Duration // the measurement takes, whatever the duration asked for
}

// A sample is what one measurement of a contender has found.
type sample struct {
	setup    setup
	results  []Result
	elapsed  time.Duration
	redis    load            // while the sections were counted
	idle     load            // from before the processes started to the beginning of that
	gaps     []time.Duration // from an Unlock to the next grant of the same key
	overlaps int
}

// A bench has the servers, which stay the same for all measurements.
type bench struct {
	stage   *stage
	masters []*server
	names   int
}

// servers returns n servers, emptied.
func (b *bench) servers(ctx context.Context, n int) ([]*server, error) {
	for len(b.masters) < n {
		b.masters = append(b.masters, startServer(b.stage))
	}
	for _, s := range b.masters[:n] {
		if err := s.admin.FlushAll(ctx).Err(); err != nil {
			return nil, err
		}
	}
	return b.masters[:n], nil
}

// measure runs a setup with a contender for so long.
func (b *bench) measure(ctx context.Context, s setup, contender string, d time.Duration) (sample, error) {
	servers, err := b.servers(ctx, max(s.masters, 1))
	if err != nil {
		return sample{}, err
	}
	empty, err := servers[0].load(ctx)
	if err != nil {
		return sample{}, err
	}
	stage := &stage{}
	defer stage.end()
	job := s.job
	b.names++
	job.Contender, job.Name = contender, fmt.Sprint("bench", b.names)
	for _, server := range servers {
		job.Addrs = append(job.Addrs, server.addr)
	}
	silence := func() {}
	if s.hole {
		last := &job.Addrs[len(job.Addrs)-1]
		hole := startHole(stage, *last)
		*last, silence = hole.Addr(), func() { hole.Blackhole(true) }
	}
	if s.rtt > 0 {
		if job.Addrs[0], err = startDelay(ctx, stage, job.Addrs[0], s.rtt); err != nil {
			return sample{}, err
		}
	}
	c, err := spawnCrew(max(s.processes, 1))
	if err != nil {
		return sample{}, err
	}
	defer c.end()
	if err := c.all(func(_ int, p *process) error { return p.call(ctx, "Prepare", job, nil) }); err != nil {
		return sample{}, err
	}
	silence()
	return b.watch(ctx, c, s, servers[0], empty, d)
}

// watch lets a crew work that is prepared, and measures.
func (b *bench) watch(ctx context.Context, c crew, s setup, server *server, empty load, d time.Duration) (sample, error) {
	d = max(d, s.least)
	settle := cmp.Or(s.settle, d/4)
	if err := c.all(func(_ int, p *process) error { return p.call(ctx, "Run", settle, nil) }); err != nil {
		return sample{}, err
	}
	before, err := server.load(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return sample{}, ctx.Err()
	}
	after, err := server.load(ctx)
	if err != nil {
		return sample{}, err
	}
	out := sample{setup: s, results: make([]Result, len(c)), elapsed: time.Since(began), redis: after.minus(before), idle: before.minus(empty)}
	if err := c.all(func(i int, p *process) error { return p.call(ctx, "Stop", struct{}{}, &out.results[i]) }); err != nil {
		return sample{}, err
	}
	out.findGaps()
	return out, nil
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
		if all[i].Key != all[i-1].Key {
			continue
		}
		gap := time.Duration(all[i].Granted - all[i-1].Released)
		if gap < 0 {
			s.overlaps++
		}
		s.gaps = append(s.gaps, gap)
	}
}

// trouble says what went wrong without ending the measurement, "" for nothing.
func (s *sample) trouble() string {
	failed, lost, first := 0, 0, ""
	for _, r := range s.results {
		failed += r.Failed
		lost += r.Lost
		first = cmp.Or(first, r.Error)
	}
	out := ""
	if failed > 0 {
		out = fmt.Sprintf("%d calls failed, the first: %s", failed, first)
	}
	if lost > 0 {
		out += fmt.Sprintf(" %d of %d locks held were lost", lost, s.setup.job.Held)
	}
	if s.overlaps > 0 {
		out += fmt.Sprintf(" %d sections OVERLAPPED", s.overlaps)
	}
	return out
}
