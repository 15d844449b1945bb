package locker

import (
	"testing"
	"testing/synctest"
	"time"
	"context"
)

// ctx that dies between unlock's two looks
type dying struct{ context.Context; n int; ch chan struct{} }
func (d *dying) Done() <-chan struct{} { return d.ch }
func (d *dying) Err() error { d.n++; if d.n > 1 { return context.Canceled }; return nil }

func TestXAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := nf()
		l, _ := New(f)
		defer l.Close()
		a, _ := l.Lock(t.Context(), "k")
		f.onRel = func(ctx context.Context, c Claim) error { <-ctx.Done(); return ctx.Err() }
		ch := make(chan struct{}); close(ch)
		t0 := time.Now()
		err := a.Unlock(&dying{t.Context(), 0, ch})
		t.Log(time.Since(t0), err)
		if time.Since(t0) > time.Second { t.Error("live at the call, ended just after: waited on") }
	})
}
