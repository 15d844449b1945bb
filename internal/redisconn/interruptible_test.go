package redisconn

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// reading is a connection that tells when it is read from.
type reading struct {
	net.Conn
	reads chan struct{}
}

func (r reading) Read(b []byte) (int, error) {
	r.reads <- struct{}{}
	return r.Conn.Read(b)
}

// The answer to a command that was left is waited for, though its caller leaves again, as
// it does when the connection was first to notice, and though the Locker ends.
func TestLeavingTwiceCutsNothingShort(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	conn := reading{here, make(chan struct{}, 1)}
	w := &interruptibleConn{Conn: conn, unhook: func() bool { return true }}
	w.begin(time.Now().Add(time.Hour), true)
	w.wrote.Store(true)
	w.interrupt()
	_, err := w.Read(make([]byte, 1))
	require.Error(t, err)
	<-conn.reads
	require.NoError(t, w.Close())
	<-conn.reads
	w.interrupt()
	w.interruptClosing()
	select {
	case <-w.awaited():
		t.Fatal("given up before the answer")
	case <-time.After(50 * time.Millisecond): // what should not happen has this time to
	}
	_, err = there.Write([]byte("+"))
	require.NoError(t, err)
	<-w.awaited()
}

// jammed is a connection whose peer takes nothing any more, as TLS's is closed then.
type jammed struct {
	net.Conn
	closes chan struct{}
}

func (jammed) SetDeadline(time.Time) error { return nil }
func (c jammed) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
func (c jammed) Close() error              { <-c.closes; return nil }

// A caller that gives up a connection whose peer takes nothing does not wait for the goodbye.
func TestStuckConnectionIsClosedBesideTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closes := make(chan struct{})
		w := &interruptibleConn{Conn: jammed{closes: closes}, unhook: func() bool { return true }}
		w.begin(time.Now().Add(time.Second), false)
		_, err := w.Write([]byte("command"))
		require.Error(t, err)
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_ = w.Close()
		}()
		synctest.Wait()
		select {
		case <-returned:
		default:
			close(closes)
			t.Fatal("the caller waits")
		}
		require.True(t, w.unusable.Load())
		close(closes)
	})
}
