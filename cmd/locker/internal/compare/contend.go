package compare

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/strategy"
)

// The processes that contend for a key are processes. Each has a Locker of every strategy,
// and they take turns as the runs do.

const (
	contenderKind = "locker compare contender"
	contenders    = 4
)

// place names the store at which a contender finds the locks of a strategy.
type place struct {
	Name, URL, Mark string
	Nodes           []string // of redlock, instead of URL
}

// bout is a run of all contenders: from its line on, until End.
type bout struct {
	Name, Key  string
	Start, End int64 // in ns since 1970, by the clock that all processes of a machine share
}

// grant is a time of a contender as the holder.
type grant struct {
	Token            int64
	Asked, Got, Left int64 // as in bout; Left: when it began to unlock
	process          int
}

// corner records one contender of a bout.
type corner struct {
	Grants []grant
	Cut    int64 // when it asked for what the end of the bout cut off; 0: nothing
	Error  string
}

// contenderSpec starts a contender.
type contenderSpec struct {
	Places []place
	// Clean are the Redis servers of others, where it deletes all with Mark if its parent dies. One contender does that.
	Clean []string
	Mark  string
}

// contend does the work of a contender.
func contend(parent child.Parent, spec contenderSpec) error {
	lockers := make(map[string]locker.Locker)
	for _, p := range spec.Places {
		l, release, err := p.open(context.Background())
		if err != nil {
			return err
		}
		defer release()
		lockers[p.Name] = l
	}
	out := json.NewEncoder(parent)
	if err := out.Encode(corner{}); err != nil { // it is ready
		return err
	}
	for in := json.NewDecoder(parent); ; {
		var b bout
		if err := in.Decode(&b); err != nil { // the parent is dead
			if len(spec.Clean) > 0 {
				time.Sleep(grace) // until the others have ended
				return (&stores{urls: spec.Clean, mark: spec.Mark}).cleanUp(context.Background())
			}
			return nil
		}
		if b.Name == "" { // all is done
			return nil
		}
		if err := out.Encode(b.fight(lockers[b.Name])); err != nil {
			return err
		}
	}
}

func (p place) open(ctx context.Context, opts ...locker.Option) (*locker.Client, func(), error) {
	cfg := strategy.Config{URL: p.URL, Prefix: p.Mark, Options: opts}
	for _, node := range p.Nodes {
		cfg.Strategy = "redlock"
		cfg.Nodes = append(cfg.Nodes, strategy.Node{URL: node})
	}
	return strategy.Open(ctx, cfg)
}

// fight locks and unlocks until the end.
func (b bout) fight(l locker.Locker) (c corner) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, b.End))
	defer cancel()
	for ctx.Err() == nil {
		g := grant{Asked: time.Now().UnixNano()}
		lease, err := l.Lock(ctx, b.Key)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			c.Cut = g.Asked
			return c
		case err != nil:
			c.Error = err.Error()
			return c
		}
		g.Token, g.Got = lease.Token(), time.Now().UnixNano()
		g.Left = time.Now().UnixNano()
		if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
			c.Error = err.Error()
			return c
		}
		c.Grants = append(c.Grants, g)
	}
	return c
}

// ring has the contenders.
type ring struct {
	all   []*child.Child
	in    []*json.Decoder
	bouts int
}

// newRing starts them. Their locks are at places.
func newRing(places []place, s *stores) (*ring, error) {
	r := &ring{}
	for i := range contenders {
		spec := contenderSpec{Places: places, Mark: s.mark}
		if i == 0 && !s.own && !s.embed {
			spec.Clean = s.redisURLs()
		}
		c, err := child.Start(contenderKind, spec, nil)
		if err != nil {
			r.close()
			return nil, err
		}
		r.all, r.in = append(r.all, c), append(r.in, json.NewDecoder(bufio.NewReader(c)))
	}
	for _, in := range r.in {
		var ready corner
		if err := in.Decode(&ready); err != nil {
			r.close()
			return nil, fmt.Errorf("a contending process did not start: %w", err)
		}
	}
	return r, nil
}

func (r *ring) close() {
	var all sync.WaitGroup
	for _, c := range r.all {
		all.Go(func() {
			_ = json.NewEncoder(c).Encode(bout{})
			_ = c.Stop(grace)
		})
	}
	all.Wait()
}

// fight lets the contenders contend for so long.
func (r *ring) fight(ctx context.Context, name string, d time.Duration) (b bout, f *fought, err error) {
	r.bouts++
	start := time.Now()
	key := fmt.Sprint("contended ", r.bouts) // what a bout leaves behind is not the next one's
	b = bout{Name: name, Key: key, Start: start.UnixNano(), End: start.Add(d).UnixNano()}
	line, err := json.Marshal(b)
	if err != nil {
		return b, nil, err
	}
	for _, c := range r.all {
		if _, err := c.Write(append(line, '\n')); err != nil {
			return b, nil, errors.Join(ctx.Err(), err)
		}
	}
	defer context.AfterFunc(ctx, func() { // a child that waits for its server is not waited for
		for _, c := range r.all {
			c.Kill()
		}
	})()
	corners := make([]corner, len(r.in))
	for i, in := range r.in {
		if err := in.Decode(&corners[i]); err != nil {
			return b, nil, errors.Join(ctx.Err(), fmt.Errorf("a contending process ended: %w", err))
		}
	}
	for _, c := range corners { // all are read before: the next lines belong to the next bout
		if c.Error != "" {
			return b, nil, fmt.Errorf("a contending process: %s", c.Error)
		}
	}
	return b, b.judge(corners), nil
}

// fought records a bout.
type fought struct {
	all             []grant // in the order of the grants
	grants, changes int
	perS, changesS  float64
	gaps            []float64 // at each change, in µs
	waits           []float64 // in ms; those cut off with what they had lasted
	longest         float64   // in ms
	cutLongest      bool      // the longest one was cut off
	share           float64
}

// judge counts. The holders' order is that of the tokens, or of the times where there are none.
func (b bout) judge(corners []corner) *fought {
	f := &fought{}
	var all []grant
	turns := make([]float64, len(corners))
	for i, c := range corners {
		turns[i] = float64(len(c.Grants))
		for _, g := range c.Grants {
			g.process = i
			all = append(all, g)
			wait := ms(g.Got - g.Asked)
			f.waits = append(f.waits, wait)
			f.longest = max(f.longest, wait)
		}
	}
	for _, c := range corners {
		if c.Cut == 0 {
			continue
		}
		lasted := ms(b.End - c.Cut)
		f.waits = append(f.waits, lasted)
		if lasted > f.longest {
			f.longest, f.cutLongest = lasted, true
		}
	}
	slices.SortFunc(all, func(x, y grant) int { return cmp.Or(cmp.Compare(x.Token, y.Token), cmp.Compare(x.Got, y.Got)) })
	for i := 1; i < len(all); i++ {
		if all[i].process != all[i-1].process {
			f.changes++
			f.gaps = append(f.gaps, float64(all[i].Got-all[i-1].Left)/1e3)
		}
	}
	f.all, f.grants = all, len(all)
	took := float64(b.End-b.Start) / 1e9
	f.perS, f.changesS = float64(f.grants)/took, float64(f.changes)/took
	if most := slices.Max(turns); most > 0 {
		f.share = slices.Min(turns) / most
	}
	slices.Sort(f.gaps)
	return f
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
