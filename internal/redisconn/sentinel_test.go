package redisconn

import (
	"context"
	"io"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// nameServer is a resolver that answers each question for IPv4 by all addresses given,
// the next one first each time. (Each lookup asks for IPv6, too, before or after it.)
func nameServer(t *testing.T, addrs ...net.IP) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1024)
		turn := 0
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			answer, forIPv4 := dnsAnswer(buf[:n], addrs, turn)
			if forIPv4 {
				turn++
			}
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// dnsAnswer answers a question, and reports whether it was one for an address of IPv4.
func dnsAnswer(question []byte, addrs []net.IP, turn int) (a []byte, forIPv4 bool) {
	const header = 12
	end := header
	for question[end] != 0 {
		end += 1 + int(question[end])
	}
	end += 5 // the root, the type and the class
	if forIPv4 = question[end-3] == 1; !forIPv4 {
		addrs = nil
	}
	a = append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, byte(len(addrs)), 0, 0, 0, 0}, question[header:end]...)
	for i := range addrs {
		a = append(a, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		a = append(a, addrs[(turn+i)%len(addrs)].To4()...)
	}
	return a, forIPv4
}

// serverConn is a connection to a server of that name.
type serverConn struct {
	net.Conn
	server string
	closed atomic.Bool
}

func (c *serverConn) RemoteAddr() net.Addr {
	return &net.UnixAddr{Name: c.server, Net: "unix"}
}
func (c *serverConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *serverConn) Close() error                { c.closed.Store(true); return nil }

// followed is a masterFollower whose Sentinels are a variable.
type followed struct {
	t      *testing.T
	f      *masterFollower
	master atomic.Value // the server that the Sentinels name; "" if none answers
	dials  atomic.Int32
}

func follow(t *testing.T) *followed {
	t.Helper()
	w := &followed{t: t}
	w.master.Store("old")
	w.f = &masterFollower{life: t.Context(), timeout: time.Second, conns: make(map[*followerConn]struct{})}
	w.f.dial = func(context.Context, string, string) (net.Conn, error) {
		w.dials.Add(1)
		if w.master.Load() == "" {
			return nil, io.EOF
		}
		return &serverConn{server: w.master.Load().(string)}, nil
	}
	return w
}

// connect returns a new connection, and the one below it.
func (w *followed) connect() (net.Conn, *serverConn) {
	w.t.Helper()
	c, err := w.f.connect(w.t.Context(), "tcp", failoverAddr)
	require.NoError(w.t, err)
	return c, c.(*followerConn).Conn.(*serverConn)
}

// renew writes to c, and lets d pass without another write.
func (w *followed) renew(c net.Conn, d time.Duration) {
	w.t.Helper()
	_, err := c.Write([]byte("a renewal"))
	require.NoError(w.t, err)
	w.pass(d)
}

// pass lets d pass, and what follows from it happen.
func (w *followed) pass(d time.Duration) {
	time.Sleep(d) // in the bubble's time: what begins a question is that time passes
	synctest.Wait()
}

// A write to the old master may come when the Sentinels still name it. The next one may be the last before the lease
// ends, so it has to go to the new master.
func TestQuestionsGoOnAfterAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t)
		c, inner := w.connect()
		w.pass(time.Minute)
		w.renew(c, 3*time.Second)
		require.False(t, inner.closed.Load())
		w.master.Store("new")
		w.pass(askEvery)
		require.True(t, inner.closed.Load(), "a connection to the old master is closed")
	})
}

// An open connection that nothing is written to costs no questions.
func TestQuestionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t)
		c, _ := w.connect()
		w.renew(c, time.Minute)
		const each = int32(askFor / askEvery)
		require.InDelta(t, 1+each, w.dials.Load(), 1)
		asked := w.dials.Load()
		w.pass(time.Minute)
		require.Equal(t, asked, w.dials.Load())
		w.renew(c, time.Minute)
		require.InDelta(t, asked+each, w.dials.Load(), 1, "each write begins them")
	})
}

// A question for the master that fails is asked again, though nothing is written meanwhile: until it is answered, or no
// connection is left.
func TestFailedQuestionsAreAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t)
		c, inner := w.connect()
		w.master.Store("")
		w.renew(c, 2*askFor)
		require.False(t, inner.closed.Load())
		w.master.Store("new")
		w.pass(askEvery)
		require.True(t, inner.closed.Load(), "a connection to the old master is closed")

		c, _ = w.connect()
		w.master.Store("")
		w.renew(c, 2*askFor)
		require.NoError(t, c.Close())
		asked := w.dials.Load()
		w.pass(time.Minute)
		require.Equal(t, asked, w.dials.Load(), "without a connection there is no question")
	})
}

// A Locker that was idle learns of a failover at its first write, and not half a second later.
func TestFirstQuestionIsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t)
		c, inner := w.connect()
		w.pass(time.Minute)
		w.master.Store("new")
		w.renew(c, time.Millisecond)
		require.True(t, inner.closed.Load(), "a connection to the old master is closed")
	})
}

// A question that outlives its context is about the Sentinel. A master that is dead does not keep the next such question waiting.
func TestPatientQuestionDialsNoMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := follow(t)
		const silent = time.Minute // until go-redis gives the Sentinel up
		patient := 0
		w.f.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if until, _ := ctx.Deadline(); time.Until(until) > silent {
				patient++
				time.Sleep(silent) // in the bubble's time: the Sentinel does not answer
			}
			if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.ConnectStart != nil {
				trace.ConnectStart("tcp", "the master's")
			}
			<-ctx.Done() // the master does not answer
			return nil, ctx.Err()
		}
		fail := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := w.f.connect(ctx, "tcp", failoverAddr)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
		}
		fail()
		fail()
		require.Equal(t, 1, patient, "one at a time")
		w.pass(silent)
		fail()
		require.Equal(t, 2, patient)
		w.pass(silent)
	})
}

// go-redis keeps asking one Sentinel as long as its answers are awaited for less than the Sentinel's time-outs. It goes
// over to another only when these are over.
func TestSilentSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 0, 3)
	opts := s.Options()
	opts.SentinelAddrs = opts.SentinelAddrs[:1] // asked first; it names the others
	opts.ReadTimeout, opts.MaxRetries = controlTimeout+time.Second, -1
	rdb := redis.NewFailoverClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	require.NoError(t, d.Acquire(t.Context(), claim{"k", "id"}))
	admin := s.Master(t).Client(t)
	s.Sentinels()[0].Pause()
	paused := time.Now()
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	require.Eventually(t, func() bool {
		return d.Acquire(t.Context(), claim{"k", "id"}) == nil
	}, time.Minute, 100*time.Millisecond, "another Sentinel is asked")
	require.Greater(t, time.Since(paused), opts.ReadTimeout, "the first one is given up")
}

// A master whose name has two addresses, of which sometimes the one comes first and sometimes the
// other, is one server: its connections stay.
func TestMasterWithTwoAddresses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("--bind", "127.0.0.1", "127.0.0.2"))
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	dialer := net.Dialer{Resolver: nameServer(t, net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2))}
	var dials, second atomic.Int32
	rdb := redis.NewClient(&redis.Options{
		Addr: failoverAddr,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("master.test.", port))
			if err == nil && conn.RemoteAddr().String() != server.Addr() {
				second.Add(1)
			}
			return conn, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	began := time.Now()
	for time.Since(began) < 5*askEvery {
		err := d.Acquire(t.Context(), claim{"k", "id"})
		require.NoError(t, err)
	}
	require.Positive(t, second.Load(), "both addresses were used")
	require.Less(t, second.Load(), dials.Load())
	const ways = 2 // the pipeline, and the line
	require.LessOrEqual(t, dials.Load(), ways+int32(time.Since(began)/askEvery)+1)
}
