package redisdriver

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/redis/go-redis/v9"
)

// direct is the way of a command that comes alone: its caller sends it by itself, on a
// connection that it can leave when its ctx ends, which saves two changes of goroutines.
type direct struct {
	rdb *redis.Client // with one connection

	mu     sync.Mutex
	wire   *wire // the connection, if there is one
	busy   bool
	turn   int             // of the caller that sends
	gone   int             // the last one that left
	locker context.Context // with which the command under way is to end; or nil
	bound  bool            // leaveLocker is called at the end of the Locker
}

func newDirect(o *redis.Options) *direct {
	d := &direct{}
	c := privateOptions(o)
	dial := c.Dialer
	c.PoolSize = 1
	c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn}
		d.mu.Lock()
		if d.wire = w; d.gone == d.turn {
			w.leave()
		}
		d.mu.Unlock()
		return probed(w, conn), nil
	}
	d.rdb = redis.NewClient(c)
	return d
}

// take reports whether the caller may send.
func (d *direct) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return false
	}
	d.busy = true
	d.turn++
	return true
}

// send sends f's command, and returns when it is answered or ctx ends. If f.over is set
// then, the command may be on its way still until that is closed.
func (d *direct) send(ctx context.Context, f *flight) {
	caller, locker := bound.Ends(ctx)
	d.mu.Lock()
	turn := d.turn
	if d.locker = locker; locker != nil && !d.bound { // always the same one
		d.bound = true
		context.AfterFunc(locker, d.leaveLocker)
	}
	d.mu.Unlock()
	if f.ended = caller.Done(); f.ended != nil {
		defer context.AfterFunc(caller, func() { d.leave(turn) })()
	}
	f.until, _ = ctx.Deadline()
	f.cmd = f.script.bySHA(f, f.in)
	err := d.rdb.Process(f, f.cmd)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy = false; d.wire != nil {
		if err == nil || isAnswer(err) {
			d.wire.rejoin() // the end of ctx was too late
		} else {
			f.over = d.wire.left()
		}
	}
	d.turn++
	f.cmd.SetErr(err)
}

func isAnswer(err error) bool {
	var server redis.Error
	return errors.As(err, &server)
}

// leave has the caller whose turn it is leave.
func (d *direct) leave(turn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turn != turn {
		return
	}
	if d.gone = turn; d.wire != nil {
		d.wire.leave()
	}
}

// leaveLocker has the caller leave if its command is to end with the Locker.
func (d *direct) leaveLocker() {
	d.mu.Lock()
	busy, turn := d.busy && d.locker != nil, d.turn
	d.mu.Unlock()
	if busy {
		d.leave(turn)
	}
}

func (d *direct) close() error { return d.rdb.Close() }

// A flight is the context of its command: a wait for the connection ends with it.
func (f *flight) Deadline() (time.Time, bool) { return f.until, !f.until.IsZero() }

// Done implements [context.Context].
func (f *flight) Done() <-chan struct{} { return f.ended }

// Err implements [context.Context].
func (f *flight) Err() error {
	select {
	case <-f.ended:
		return context.Canceled
	default:
		return nil
	}
}

// Value implements [context.Context].
func (*flight) Value(any) any { return nil }

// wire is a connection that the goroutine that waits for an answer can be made to leave.
// It is told that its time is over; go-redis closes the connection then, which is put off
// until the answer has come.
type wire struct {
	net.Conn
	mu   sync.Mutex
	told bool          // to leave
	over chan struct{} // made when the time is over; closed when the answer is there
}

func (w *wire) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = true
	_ = w.Conn.SetDeadline(time.Unix(1, 0))
}

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.note(err, make(chan struct{}))
	}
	return n, err
}

// Write implements [net.Conn].
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if err != nil {
		w.note(err, closedChan) // a command in part is none
	}
	return n, err
}

// note notes that the time of the caller is over, if err says so.
func (w *wire) note(err error, over chan struct{}) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.mu.Lock()
		w.over = over
		w.mu.Unlock()
	}
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (w *wire) rejoin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over = nil; w.told {
		w.told = false
		_ = w.Conn.SetDeadline(time.Time{})
	}
}

// left is nil if the caller has not left.
func (w *wire) left() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// SetDeadline implements [net.Conn].
func (w *wire) SetDeadline(t time.Time) error { return w.set(w.Conn.SetDeadline, t) }

// SetReadDeadline implements [net.Conn].
func (w *wire) SetReadDeadline(t time.Time) error { return w.set(w.Conn.SetReadDeadline, t) }

// SetWriteDeadline implements [net.Conn].
func (w *wire) SetWriteDeadline(t time.Time) error { return w.set(w.Conn.SetWriteDeadline, t) }

func (w *wire) set(deadline func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told {
		return nil
	}
	return deadline(t)
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	over := w.left()
	if over == nil || over == closedChan {
		return w.Conn.Close()
	}
	go func() {
		defer close(over)
		_ = w.Conn.SetReadDeadline(time.Now().Add(controlTimeout))
		_, _ = w.Conn.Read(make([]byte, 1))
		_ = w.Conn.Close()
	}()
	return nil
}
