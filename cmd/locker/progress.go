package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how far the comparison is: by bars on a terminal, else by lines.
type progress struct {
	w     io.Writer
	bars  *mpb.Progress // nil: lines
	mu    sync.Mutex
	suits map[string]*mpb.Bar
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, suits: make(map[string]*mpb.Bar)}
	if isTerminal(w) {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(100*time.Millisecond))
	}
	return p
}

func (p *progress) begin(what string) {
	if p.bars != nil {
		_, _ = fmt.Fprintf(p.bars, "%s\n", what)
		return
	}
	fmt.Fprintln(p.w, "locker:", what)
}

// suite shows how many cases of a strategy are done.
func (p *progress) suite(strategy string, done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bars == nil {
		if done == of {
			fmt.Fprintf(p.w, "locker: %s: %d cases are through\n", strategy, done)
		}
		return
	}
	bar := p.suits[strategy]
	if bar == nil {
		bar = p.bars.AddBar(int64(of),
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-14s", strategy))),
			mpb.AppendDecorators(decor.CountersNoUnit("%d of %d cases")))
		p.suits[strategy] = bar
	}
	bar.SetTotal(int64(of), false)
	bar.SetCurrent(int64(done))
	if done == of {
		bar.SetTotal(int64(of), true)
	}
}

func (p *progress) end() {
	if p.bars == nil {
		return
	}
	for _, b := range p.suits {
		b.Abort(false)
	}
	p.bars.Wait()
}
