package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/conformance/internal/suite"
)

// Check runs the suite without go test, for programs that compare strategies: the cases of
// [Run], with progress called (by one goroutine at a time) as each ends; nil is no
// progress. When ctx ends, the cases that have not begun are left out. The error is about
// opts or newHarness, not about cases. What a harness starts as processes must be in the
// program: see [Main].
func Check(ctx context.Context, newHarness HarnessMaker, progress func(Result), opts ...Option) (Report, error) {
	r, err := newRunner(opts)
	if err != nil {
		return Report{}, err
	}
	root := suite.NewRecorder(ctx, "conformance")
	defer root.CleanUp()
	var shared Harness
	root.Do(func() { shared = newHarness(root) })
	if shared == nil || root.Failed() {
		return Report{}, errors.New("conformance: no harness: " + root.Said())
	}
	results, beside, alone := r.plan(shared)
	var mu sync.Mutex
	run := func(c Case) {
		if ctx.Err() != nil {
			return
		}
		tb, start, why := suite.NewRecorder(context.WithoutCancel(ctx), c.path()), time.Now(), ""
		tb.Do(func() { why = c.run(tb, c.on(tb, shared, newHarness), r.seed) })
		tb.CleanUp()
		if tb.Failed() && why == "" {
			why = tb.Said()
		}
		mu.Lock()
		defer mu.Unlock()
		if res := results.ran(c, tb.Failed(), time.Since(start), why); progress != nil {
			progress(res)
		}
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, r.parallel)
	for _, c := range beside {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			run(c)
		})
	}
	all.Wait()
	for _, c := range alone {
		run(c)
	}
	return results.result(), nil
}
