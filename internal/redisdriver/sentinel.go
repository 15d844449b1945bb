package redisdriver

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"slices"
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
// are written to. Servers are told apart by the remote addresses of connections. A master's
// name may have several: all that were found with the address of the newest connection are the
// master's. (Two servers cannot be compared without INFO, which users may not be allowed. The
// name alone would not do: its addresses may change with the master.)
type follower struct {
	life    context.Context // of the driver
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	timeout time.Duration // of dial
	asked   atomic.Int64  // when, in ns

	mu    sync.Mutex
	conns map[*followed]struct{}
}

// follow has connections made with o follow the master, if o asks Sentinels.
func follow(life context.Context, o *redis.Options) {
	if o.Addr == failoverAddr {
		f := &follower{life: life, dial: o.Dialer, timeout: o.DialTimeout, conns: make(map[*followed]struct{})}
		o.Dialer = f.connect
	}
}

func (f *follower) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	f.asked.Store(time.Now().UnixNano())
	conn, master, err := f.reach(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &followed{Conn: conn, f: f, network: network}
	f.mu.Lock()
	f.conns[c] = struct{}{}
	f.mu.Unlock()
	f.closeOthers(master)
	return probed(c, conn), nil
}

// reach connects, and returns the addresses of the server that it has reached.
func (f *follower) reach(ctx context.Context, network, addr string) (net.Conn, []string, error) {
	var found atomic.Pointer[[]net.IPAddr] // package net reports to the trace what a name has
	trace := &httptrace.ClientTrace{DNSDone: func(i httptrace.DNSDoneInfo) { found.Store(&i.Addrs) }}
	conn, err := f.dial(httptrace.WithClientTrace(ctx, trace), network, addr)
	if err != nil {
		return nil, nil, err
	}
	master := []string{serverOf(conn)}
	host, port, err := net.SplitHostPort(master[0])
	if named := found.Load(); err == nil && named != nil {
		is := func(ip net.IPAddr) bool { return ip.String() == host }
		if slices.ContainsFunc(*named, is) { // and not of another name, such as a tunnel's
			for _, ip := range *named {
				master = append(master, net.JoinHostPort(ip.String(), port))
			}
		}
	}
	return conn, master, nil
}

// closeOthers closes the connections to other servers than the master, which has the addresses.
func (f *follower) closeOthers(master []string) {
	var old []*followed
	f.mu.Lock()
	for c := range f.conns {
		if !slices.Contains(master, serverOf(c)) {
			old = append(old, c)
		}
	}
	f.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// serverOf tells servers apart. A connection of the user's own making may have no address.
func serverOf(conn net.Conn) string { return fmt.Sprint(conn.RemoteAddr()) }

// used asks for the master in the background if it is time to.
func (f *follower) used(network string) {
	asked, now := f.asked.Load(), time.Now().UnixNano()
	if now-asked < int64(askAgain) || !f.asked.CompareAndSwap(asked, now) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(f.life, f.timeout)
		defer cancel()
		conn, master, err := f.reach(ctx, network, failoverAddr)
		if err != nil {
			return
		}
		_ = conn.Close()
		f.closeOthers(master)
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
