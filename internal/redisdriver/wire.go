package redisdriver

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a connection that the goroutine that waits for an answer can be made to leave:
// it is told that its time is over. go-redis closes the connection then, which is put off
// until the answer has come.
type wire struct {
	net.Conn
	forget func() bool // what closes Conn when the driver is closed
	wrote  atomic.Bool // all of the command, as far as we know

	mu     sync.Mutex
	locker bool // the caller leaves at the end of the Locker
	gone   bool // left, or closed
	over   chan struct{}
	closed sync.Once
}

// begin begins a command, whose caller leaves by itself at the time given.
func (w *wire) begin(until time.Time, locker bool) {
	w.wrote.Store(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locker = locker; !w.gone {
		_ = w.Conn.SetDeadline(until)
	}
}

// leave has the caller leave, for good.
func (w *wire) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveLocked()
}

// leaveLocked takes effect once. After Close the deadline is that of the goroutine that
// waits for the answer, which a second one would cut short.
func (w *wire) leaveLocked() {
	if !w.gone {
		w.gone = true
		_ = w.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// leaveLocker has the caller leave if its command is to end with the Locker.
func (w *wire) leaveLocker() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locker {
		w.leaveLocked()
	}
}

// lost reports whether no more can be sent.
func (w *wire) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// ended is nil unless the caller has left a command that it wrote; it is closed when the
// answer is there.
func (w *wire) ended() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && w.wrote.Load() {
		w.mu.Lock()
		w.over = make(chan struct{})
		w.mu.Unlock()
	}
	return n, err
}

// Write implements [net.Conn]. A command in part is none.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.wrote.Store(err == nil)
	return n, err
}

// SetDeadline implements [net.Conn]. It changes nothing: begin and leave set the deadline,
// and go-redis takes it away between two commands.
func (*wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements [net.Conn]; see SetDeadline.
func (*wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [net.Conn]; see SetDeadline.
func (*wire) SetWriteDeadline(time.Time) error { return nil }

// Close implements [net.Conn].
func (w *wire) Close() (err error) {
	w.closed.Do(func() {
		w.mu.Lock()
		w.gone = true
		over := w.over
		w.mu.Unlock()
		switch {
		case over != nil:
		case w.wrote.Load():
			w.forget()
			err = w.Conn.Close()
			return
		default: // the peer may take no more: TLS would wait 5 s for it to take the goodbye
			go func() {
				w.forget()
				_ = w.Conn.Close()
			}()
			return
		}
		go func() {
			defer close(over)
			_ = w.Conn.SetReadDeadline(time.Now().Add(controlTimeout))
			_, _ = w.Conn.Read(make([]byte, 1))
			w.forget()
			_ = w.Conn.Close()
		}()
	})
	return err
}
