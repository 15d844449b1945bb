package bound

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// However it is asked, a Context ends by the first of its ends.
func TestEnds(t *testing.T) {
	asked := map[string]func(*Context) error{
		"Done": func(c *Context) error {
			<-c.Done()
			return c.Err()
		},
		"a child": func(c *Context) error {
			child, cancel := context.WithCancel(c)
			defer cancel()
			<-child.Done()
			return child.Err()
		},
		"Err": func(c *Context) error {
			for c.Err() == nil {
				time.Sleep(time.Millisecond) // on the bubble's clock
			}
			return c.Err()
		},
	}
	ends := map[string]struct {
		want error
		end  func(parent, closed context.CancelFunc)
	}{
		"the parent": {context.Canceled, func(parent, _ context.CancelFunc) { parent() }},
		"Close":      {context.Canceled, func(_, closed context.CancelFunc) { closed() }},
		"its time":   {context.DeadlineExceeded, func(_, _ context.CancelFunc) {}},
	}
	for name, ask := range asked {
		for end, e := range ends {
			t.Run(name+" ends with "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
					defer cancel()
					life, closeIt := context.WithCancel(t.Context())
					defer closeIt()
					c := New(parent, time.Second, life)
					defer c.Stop()
					require.Equal(t, 1, c.Value(key{}))
					at, _ := c.Deadline()
					require.Equal(t, time.Now().Add(time.Second), at)
					require.NoError(t, c.Err())
					time.AfterFunc(time.Millisecond, func() { e.end(cancel, closeIt) })
					require.Equal(t, e.want, ask(c))
				})
			})
		}
	}
}

// telling is a context whose Err says more than that it has ended.
type telling struct {
	context.Context
	err error
}

func (c telling) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return c.err
}

// A driver sees one of package context's errors, whatever the Err of the caller's context is.
func TestErrIsOneOfPackageContexts(t *testing.T) {
	for name, c := range map[string]struct{ err, want error }{
		"canceled":      {errors.Join(errors.New("lost"), context.Canceled), context.Canceled},
		"over":          {fmt.Errorf("late: %w", context.DeadlineExceeded), context.DeadlineExceeded},
		"neither":       {errors.New("lost"), context.Canceled},
		"not different": {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			user := telling{parent, c.err}
			ctx, late := New(user, time.Hour, nil), New(user, time.Hour, nil)
			defer ctx.Stop()
			defer late.Stop()
			caller, _, _ := Ends(ctx)
			require.NoError(t, caller.Err())
			require.NoError(t, End(user))
			cancel()
			require.Equal(t, c.want, ctx.Err())
			require.Equal(t, c.want, caller.Err())
			require.Equal(t, c.want, End(user))
			<-late.Done() // made under a parent that has ended
			require.Equal(t, c.want, late.Err())
		})
	}
}

// A context that knows how to call a function at its end is asked for that: no goroutine waits for it.
func TestAfterFunc(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	user := &calling{Context: parent}
	c := New(user, time.Hour, nil)
	defer c.Stop()
	done := c.Done()
	require.Equal(t, 1, user.asked)
	cancel()
	<-done
}

// calling hides that it is of package context, and has AfterFunc instead.
type calling struct {
	context.Context
	asked int
}

func (c *calling) Done() <-chan struct{} { return make(chan struct{}) }

func (c *calling) AfterFunc(f func()) func() bool {
	c.asked++
	return context.AfterFunc(c.Context, f)
}

func TestStop(t *testing.T) {
	c := New(t.Context(), time.Hour, nil)
	c.Stop()
	require.ErrorIs(t, c.Err(), context.Canceled)
	<-c.Done()
	c = New(t.Context(), time.Hour, t.Context())
	done := c.Done()
	c.Stop()
	<-done
}

type key struct{}
