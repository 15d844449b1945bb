package faultproxy_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/stretchr/testify/require"
)

// shouter answers each line with it, and says on got what has come.
func shouter(t *testing.T) (addr string, got <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lines := make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					lines <- in.Text()
					_, _ = fmt.Fprintln(c, in.Text()+"!")
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

type client struct {
	net.Conn
	in *bufio.Scanner
}

func plain(t *testing.T) (p *faultproxy.Proxy, dial func() client, got <-chan string) {
	t.Helper()
	addr, got := shouter(t)
	p, err := faultproxy.NewPlain(addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, func() client {
		c, err := net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return client{c, bufio.NewScanner(c)}
	}, got
}

func (c client) say(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(t, err)
}

// silent checks that nothing comes: that time passes is the subject.
func (c client) silent(t *testing.T) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

func (c client) hears(t *testing.T, line string) {
	t.Helper()
	require.True(t, c.in.Scan(), "the connection has ended: %v", c.in.Err())
	require.Equal(t, line, c.in.Text())
}

func TestPlainPasses(t *testing.T) {
	t.Parallel()
	_, dial, _ := plain(t)
	c := dial()
	for _, line := range []string{"no *RESP", "$-5", "\x00\x16\x03"} {
		c.say(t, line)
		c.hears(t, line+"!")
	}
}

func TestPlainMute(t *testing.T) {
	t.Parallel()
	p, dial, got := plain(t)
	c := dial()
	p.Mute(true)
	c.say(t, "a")
	require.Equal(t, "a", <-got, "it arrives")
	c.silent(t)
	p.Mute(false)
	c.hears(t, "a!")
}

func TestPlainMuteAfter(t *testing.T) {
	t.Parallel()
	p, dial, got := plain(t)
	c := dial()
	held, let := p.MuteAfter(1)
	c.say(t, "a")
	c.hears(t, <-got+"!")
	select {
	case <-held:
		t.Fatal("one answer may pass")
	default:
	}
	c.say(t, "b")
	<-held
	require.Equal(t, "b", <-got, "it arrives")
	c.silent(t)
	let()
	c.hears(t, "b!")
	p.Mute(true) // a later gate
	c.say(t, "c")
	c.silent(t)
	let() // again: it opens its own gate only
	c.silent(t)
	p.Mute(false)
	c.hears(t, "c!")
}

func TestPlainBlackhole(t *testing.T) {
	t.Parallel()
	p, dial, got := plain(t)
	c := dial()
	c.say(t, "a")
	c.hears(t, <-got+"!")
	p.Blackhole(true)
	c.say(t, "b")
	c.silent(t)
	require.Empty(t, got)
	p.Blackhole(false)
	c.hears(t, "b!")
	require.Equal(t, 1, p.Cut())
	require.False(t, c.in.Scan())
	again := dial()
	again.say(t, "c")
	again.hears(t, "c!")
}

func TestPlainHoldAfter(t *testing.T) {
	t.Parallel()
	p, dial, got := plain(t)
	c := dial()
	held, let := p.HoldAfter(1)
	c.say(t, "a")
	c.hears(t, <-got+"!")
	select {
	case <-held:
		t.Fatal("one piece may pass")
	default:
	}
	c.say(t, "b")
	<-held
	c.silent(t)
	require.Empty(t, got)
	let()
	c.hears(t, "b!")
	c.say(t, "c")
	c.hears(t, "c!")
}
