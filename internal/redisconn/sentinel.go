package redisconn

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

	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// failoverAddr is the address of go-redis's clients that ask Sentinels for the master,
// which they do at each new connection.
const failoverAddr = "FailoverClient"

const (
	askEvery = 500 * time.Millisecond // the least time between two questions for the topology, while it is in use
	// askFor is how long the Sentinels are asked after a write. In a failover the replica is a master for up to some
	// three seconds until all Sentinels name it: one looks each second whether it is, and the others hear from that one
	// within two. A write to the old master in this time is followed by questions until they do.
	askFor = 5 * time.Second
	// insistFor is longer than go-redis's default time-outs of one question, retries included.
	insistFor = 2 * time.Minute
)

// masterFollower closes connections to a server that is not the master any more. After an
// orderly failover the Sentinels leave the old one a master for some ten seconds, in which
// it would go on taking writes that the new one does not have.
//
// It learns of the change from new connections. It makes one each askEvery while others are written to, and
// for askFor after a write. It knows servers by the remote addresses of connections. A master's
// name may have several: all that were found with the address of the newest connection are
// the master's. (To compare two servers takes INFO, which users may not be allowed. The name
// alone would not do: its addresses may change with the master.)
type masterFollower struct {
	life    context.Context // of the Conn
	dial    dialer
	timeout time.Duration // of dial

	mu      sync.Mutex
	conns   map[*followerConn]struct{}
	asked   time.Time // when the Sentinels were last asked
	written time.Time // when a connection was last written to
	asking  bool      // keepAsking runs

	insisting bool // a question of insist is under way
}

// reached is a connection, and the addresses of the server at its other end.
type reached struct {
	conn   net.Conn
	master []string
	err    error
}

// followMaster lets connections made with o follow the master, if o asks Sentinels.
func followMaster(life context.Context, o *redis.Options) {
	if o.Addr == failoverAddr {
		f := &masterFollower{life: life, dial: o.Dialer, timeout: o.DialTimeout, conns: make(map[*followerConn]struct{})}
		o.Dialer = f.connect
	}
}

func (f *masterFollower) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	r := f.reach(ctx, network, addr)
	if r.err != nil {
		return nil, r.err
	}
	c := &followerConn{Conn: r.conn, f: f, network: network}
	f.mu.Lock()
	f.conns[c] = struct{}{}
	f.mu.Unlock()
	f.closeOthers(r.master)
	return withSyscallConn(c, r.conn), nil
}

// reach connects, and finds the addresses of the server that it has reached.
func (f *masterFollower) reach(ctx context.Context, network, addr string) reached {
	f.mu.Lock()
	f.asked = time.Now()
	f.mu.Unlock()
	var found atomic.Pointer[[]net.IPAddr] // package net reports the addresses of a name to the trace
	trace := &httptrace.ClientTrace{DNSDone: func(i httptrace.DNSDoneInfo) { found.Store(&i.Addrs) }}
	conn, err := f.dial(httptrace.WithClientTrace(ctx, trace), network, addr)
	if ctx.Err() != nil {
		f.insist(network)
	}
	if err != nil {
		return reached{err: err}
	}
	master := []string{serverOf(conn)}
	host, port, err := net.SplitHostPort(master[0])
	if named := found.Load(); err == nil && named != nil {
		is := func(ip net.IPAddr) bool { return ip.String() == host }
		if slices.ContainsFunc(*named, is) { // or they are of another name, such as a tunnel's
			for _, ip := range *named {
				master = append(master, net.JoinHostPort(ip.String(), port))
			}
		}
	}
	return reached{conn, master, nil}
}

// insist asks for the master with patience, unless that is done already. If a question to a Sentinel ends by its
// context, go-redis asks the same Sentinel next time, though that may be silent for ever. It goes over to another
// Sentinel if the question ends by the Sentinel's own time-out, which may be longer than any context of ours.
func (f *masterFollower) insist(network string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.insisting || f.life.Err() != nil {
		return
	}
	f.insisting = true
	go func() {
		ctx, cancel := context.WithTimeout(f.life, insistFor)
		defer cancel()
		// A Sentinel has answered when the master is dialled. That dial is not waited for: the master may be dead.
		trace := &httptrace.ClientTrace{ConnectStart: func(string, string) { cancel() }}
		if conn, err := f.dial(httptrace.WithClientTrace(ctx, trace), network, failoverAddr); err == nil {
			_ = conn.Close()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.insisting = false
	}()
}

// closeOthers closes the connections to servers that have none of the master's addresses.
func (f *masterFollower) closeOthers(master []string) {
	var old []*followerConn
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

// serverOf returns a name of the server at the other end. A connection of the user's own making may
// have no address.
func serverOf(conn net.Conn) string { return fmt.Sprint(conn.RemoteAddr()) }

// used lets the questions for the master go on for askFor, and begins them if there are none.
func (f *masterFollower) used(network string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = time.Now()
	if !f.asking {
		f.asking = true
		go f.keepAsking(network, askEvery-time.Since(f.asked))
	}
}

// keepAsking asks for the master after wait and then each askEvery, until the last question was answered and nothing was
// written for askFor.
// It cannot wait for the next write: a lease is renewed every third of its TTL, so the next write may come too late.
func (f *masterFollower) keepAsking(network string, wait time.Duration) {
	for answered := true; bound.Sleep(f.life, nil, wait) && f.hasToAsk(answered); wait = askEvery {
		answered = f.ask(network)
	}
}

// hasToAsk reports whether the questions go on. If not, the next write begins them.
func (f *masterFollower) hasToAsk(answered bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = len(f.conns) > 0 && (!answered || time.Since(f.written) < askFor)
	return f.asking
}

// ask connects to the master, and closes the connections to other servers. It reports false if it gets no connection.
func (f *masterFollower) ask(network string) bool {
	ctx, cancel := context.WithTimeout(f.life, f.timeout)
	defer cancel()
	r := f.reach(ctx, network, failoverAddr)
	if r.err != nil {
		return false
	}
	_ = r.conn.Close()
	f.closeOthers(r.master)
	return true
}

// followerConn is a connection to the server that was the master when it was made.
type followerConn struct {
	net.Conn
	f       *masterFollower
	network string
}

// Write implements [net.Conn].
func (c *followerConn) Write(b []byte) (int, error) {
	c.f.used(c.network)
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *followerConn) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c)
	c.f.mu.Unlock()
	return c.Conn.Close()
}

// withSyscallConn returns conn with the SyscallConn of inner, which it wraps: go-redis needs
// it to look whether a connection is alive.
func withSyscallConn(conn, inner net.Conn) net.Conn {
	if sys, ok := inner.(syscall.Conn); ok {
		if raw, err := sys.SyscallConn(); err == nil {
			return &syscallConn{conn, raw}
		}
	}
	return conn
}

type syscallConn struct {
	net.Conn
	raw syscall.RawConn
}

// SyscallConn implements [syscall.Conn].
func (c *syscallConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
