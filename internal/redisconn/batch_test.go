package redisconn

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A batch is bounded by what it writes.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := &pipeline{busy: []*worker{{}, {}, {}, {}, {}, {}, {}, {}}} // mostBatches: it starts no more
	w := &worker{pipeline: l}
	for range 10 {
		l.queue = append(l.queue, &Command{Words: []any{"evalsha", "", 1, strings.Repeat("k", batchBytes/3)}})
	}
	require.True(t, w.takeBatch())
	require.Len(t, w.batch, 2)
	require.Len(t, l.queue, 8)
}

// A batch takes a part of what is asked for, and leaves the rest to others.
func TestBatchTakesItsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ waiting, share, next int }{
		{1, 1, 16}, {16, 16, 16}, {17, 16, 16}, {40, 16, 16}, {100, 25, 44}, {1000, 250, 438},
	} {
		l := &pipeline{busy: []*worker{{}, {}, {}, {}, {}, {}, {}, {}}}
		for range c.waiting {
			l.queue = append(l.queue, &Command{})
		}
		w := &worker{pipeline: l}
		require.True(t, w.takeBatch())
		require.Len(t, w.batch, c.share, "of %d", c.waiting)
		l.busy[0].batch = make([]*Command, c.waiting)
		require.Equal(t, c.next, l.share(), "with as many on their way")
	}
}

// Commands that are queued for a distant server wait for more, unless they are a full share or
// few.
func TestCommandsToADistantServerGather(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age                  time.Duration
		slow, queued, flying int
		gathers              bool
	}{
		"near":         {age: 0, slow: 100, queued: 5, flying: 100},
		"slow once":    {age: time.Second, slow: 0, queued: 5, flying: 100},
		"distant":      {age: time.Second, slow: 7, queued: 5, flying: 100, gathers: true},
		"a full share": {age: time.Second, slow: 7, queued: 40, flying: 100},
		"few":          {age: time.Second, slow: 7, queued: 4, flying: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &worker{batch: make([]*Command, 1), since: time.Now().Add(-c.age), wake: make(chan bool, 1)}
			spare := &worker{wake: make(chan bool, 1)} // nothing is sent
			p := &pipeline{slow: c.slow, busy: []*worker{w, {batch: make([]*Command, c.flying)}}, idle: []*worker{spare}}
			w.pipeline = p
			for range c.queued {
				p.queue = append(p.queue, &Command{})
			}
			require.Equal(t, !c.gathers, w.takeBatch())
			if c.gathers {
				require.True(t, <-w.wake, "the timer starts it")
				require.True(t, w.takeBatch())
				require.Len(t, w.batch, c.queued)
			}
		})
	}
}

// A server that forgets a script between the command that teaches it and the next one is asked again by
// whoever asked: the command was not carried out.
func TestScriptIsForgottenWithinABatch(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	require.NoError(t, l.direct.MSet(t.Context(), "a", "id", "b", "id").Err())
	require.NoError(t, l.direct.ScriptFlush(t.Context()).Err())
	var taught atomic.Bool
	held := l.proxy.Delay(func(cmd []string) bool {
		if strings.EqualFold(cmd[0], "eval") {
			taught.Store(true)
		}
		return taught.Load() && strings.EqualFold(cmd[0], "evalsha")
	}, 1, time.Hour)
	first, second := l.command(renew, claim{"a", "id"}), l.command(renew, claim{"b", "id"})
	p := l.urgent.single
	p.mu.Lock()
	for _, c := range []*Command{first, second} {
		p.register(t.Context(), c)
		c.state = sent
	}
	p.mu.Unlock()
	go p.send([]*Command{first, second})
	require.NoError(t, held.Wait(t.Context(), 1))
	require.Eventually(t, func() bool { return l.direct.PTTL(t.Context(), "a").Val() > 0 }, soon, time.Millisecond)
	require.NoError(t, l.direct.ScriptFlush(t.Context()).Err())
	held.Stop()
	require.NoError(t, p.await(t.Context(), first))
	err := p.await(t.Context(), second)
	require.ErrorContains(t, err, "NOSCRIPT")
	require.False(t, isPermanent(err))
	require.False(t, maybeApplied(err))
}
