package redistest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// settleTimeout bounds how long several servers take to agree on something. A Sentinel
// that was held up for two seconds does nothing for 30 s (TILT).
const settleTimeout = 75 * time.Second

// launchAll starts n servers at once, all or none.
func launchAll(n int, opts ...Option) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = launch(opts) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		discardAll(servers)
		return nil, err
	}
	return servers, nil
}

func discardAll(servers []*Server) {
	for _, s := range servers {
		if s != nil {
			s.discard()
		}
	}
}

// until calls f until it succeeds, and gives up with its last error.
func until(what string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if !bound.Sleep(ctx, nil, pause) {
			return fmt.Errorf("%s: not within %v: %w", what, settleTimeout, err)
		}
	}
}
