package soak

import (
	"context"
	"time"

	"github.com/distlock/locker"
)

// An operator beside the callers asks for a lock, and takes one away.

// operate does that now and then. What comes of a request is the holder's business; a lock that was taken away
// is one that the store has lost.
func (s *section) operate() {
	c := s.c
	client, ok := locker.ClientOf(c.locker)
	if !ok || !c.oneIn(100) {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	if !c.oneIn(4) {
		_ = client.RequestRelease(ctx, s.key)
		return
	}
	if h, err := client.Inspect(ctx, s.key); err == nil && h.Held {
		s.note(record{Kind: recBreak})
		_ = client.ForceUnlock(ctx, h)
		s.note(record{Kind: recBroken})
	}
}

// listen lets the lease wait for requests, now and then.
func (s *section) listen() {
	if s.c.oneIn(50) {
		s.lease.ReleaseRequested()
	}
}

// brokenWithin is how long after its ForceUnlock a command may be applied that was left behind.
const brokenWithin = 5 * time.Second

// readBreaks takes in when p has taken locks away.
func (h *history) readBreaks(p *process, strategy uint8) error {
	began := map[uint32]record{}
	add := func(r record, to instant) {
		k := h.at(r.Key)
		k.broken = append(k.broken, span{r.At, to.add(brokenWithin)})
	}
	err := readLog(p.spec.Log, func(r record) {
		switch {
		case r.Strategy != strategy:
		case r.Kind == recBreak:
			began[r.Op] = r
		case r.Kind == recBroken:
			add(began[r.Op], r.At)
			delete(began, r.Op)
		}
	})
	for _, r := range began {
		add(r, r.At)
	}
	return err
}

// lossesWithin reports whether a lock of the key may have been lost within s.
func (h *history) lossesWithin(key uint16, s span) bool {
	return h.losses.overlap(s) || h.at(key).broken.overlap(s)
}
