package postgres

import (
	"log/slog"
	"sync"
	"time"
)

// pace notices that attempts take much longer than they did. What it warns of is an old
// snapshot (see the package comment), which makes them slower by and by, with no error.
type pace struct {
	mu      sync.Mutex
	n       int
	sum     time.Duration // of the last n attempts
	fastest time.Duration // among them
	usual   time.Duration // the least mean there was; 0: none yet
	warned  time.Time
}

const (
	paceOf    = 32 // attempts are compared together
	muchMore  = 10 // times
	warnEvery = 10 * time.Minute
)

// note counts an attempt. A single one that is slow, or a few, say nothing: it warns when the
// fastest of many takes much longer than usual.
func (p *pace) note(took time.Duration, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sum += took; p.n == 0 || took < p.fastest {
		p.fastest = took
	}
	if p.n++; p.n < paceOf {
		return
	}
	mean, fastest := p.sum/paceOf, p.fastest
	p.n, p.sum = 0, 0
	switch {
	case p.usual == 0 || mean < p.usual:
		p.usual = mean
	case fastest > muchMore*p.usual && (p.warned.IsZero() || time.Since(p.warned) > warnEvery):
		p.warned = time.Now()
		log.Warn("attempts to take a lock have become slow: is there a transaction with an old snapshot? pg_stat_activity.backend_xmin names it; docs/operating.md has the query",
			"strategy", "postgres", "now", fastest, "usual", p.usual)
	}
}
