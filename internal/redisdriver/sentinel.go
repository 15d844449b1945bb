package redisdriver

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// failoverAddr is the address of go-redis's clients that ask Sentinels for the master,
// which they do at each new connection.
const failoverAddr = "FailoverClient"

// askAgain is how often the way to the store is asked for at most, while it is in use.
const askAgain = 500 * time.Millisecond

// follower closes connections to a server that is not the master any more. After an
// orderly failover the Sentinels leave the old one a master for some ten seconds, in
// which it would go on renewing locks that the new one grants to other processes.
//
// It learns of the change from new connections, and makes one now and then while others
// are written to. Servers are told apart by the remote addresses of connections.
type follower struct {
	life  context.Context // of the driver
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	asked atomic.Int64 // when, in ns

	mu     sync.Mutex
	master string
	conns  map[*followed]struct{}
}

// follow has connections made with o follow the master, if o asks Sentinels.
func follow(life context.Context, o *redis.Options) {
	if o.Addr == failoverAddr {
		f := &follower{life: life, dial: o.Dialer, conns: make(map[*followed]struct{})}
		o.Dialer = f.connect
	}
}

func (f *follower) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	f.asked.Store(time.Now().UnixNano())
	conn, err := f.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &followed{Conn: conn, f: f, network: network}
	f.mu.Lock()
	f.conns[c] = struct{}{}
	old := f.found(conn)
	f.mu.Unlock()
	closeAll(old)
	return probed(c, conn), nil
}

// found notes to which server conn is, and returns the connections to others; f.mu is held.
func (f *follower) found(conn net.Conn) (old []*followed) {
	master := serverOf(conn)
	if master == f.master {
		return nil
	}
	f.master = master
	for c := range f.conns {
		if serverOf(c) != master {
			old = append(old, c)
		}
	}
	return old
}

// serverOf tells servers apart. A connection of the user's own making may have no address.
func serverOf(conn net.Conn) string { return fmt.Sprint(conn.RemoteAddr()) }

func closeAll(cs []*followed) {
	for _, c := range cs {
		_ = c.Close()
	}
}

// used asks for the master in the background if it is time to.
func (f *follower) used(network string) {
	asked, now := f.asked.Load(), time.Now().UnixNano()
	if now-asked < int64(askAgain) || !f.asked.CompareAndSwap(asked, now) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(f.life, controlTimeout)
		defer cancel()
		conn, err := f.dial(ctx, network, failoverAddr)
		if err != nil {
			return
		}
		f.mu.Lock()
		old := f.found(conn)
		f.mu.Unlock()
		_ = conn.Close()
		closeAll(old)
	}()
}

// followed is a connection to the master of its time.
type followed struct {
	net.Conn
	f       *follower
	network string
}

// Write implements [net.Conn].
func (c *followed) Write(b []byte) (int, error) {
	c.f.used(c.network)
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *followed) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c)
	c.f.mu.Unlock()
	return c.Conn.Close()
}

// probed is conn such that go-redis can look whether inner, of which it is made, is
// alive.
func probed(conn, inner net.Conn) net.Conn {
	if sys, ok := inner.(syscall.Conn); ok {
		if raw, err := sys.SyscallConn(); err == nil {
			return &probedConn{conn, raw}
		}
	}
	return conn
}

type probedConn struct {
	net.Conn
	raw syscall.RawConn
}

// SyscallConn implements [syscall.Conn].
func (c *probedConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
