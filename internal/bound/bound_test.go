package bound

import (
	"context"
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
