package redisconn

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// interruptibleConn is a net.Conn whose blocked reader can be interrupted. go-redis closes
// the connection then; it stays open until the reply has arrived, so that later commands can
// be ordered after it.
type interruptibleConn struct {
	net.Conn
	unhook func() bool // from the context that closes Conn
	wrote  atomic.Bool // the whole command was written, as far as we know

	unusable atomic.Bool // interrupted, or closed: no more commands can be sent; mu is held where it is set

	mu        sync.Mutex
	closing   bool          // the end of the closing context interrupts the command
	replyCame chan struct{} // closed when the reply to an interrupted command has arrived; nil: none is awaited
	closeOnce sync.Once
}

// begin begins a command. Its reader is interrupted at the deadline, and with closing at the
// end of the closing context.
func (w *interruptibleConn) begin(deadline time.Time, closing bool) {
	w.wrote.Store(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing = closing; !w.unusable.Load() {
		_ = w.Conn.SetDeadline(deadline)
	}
}

// interrupt interrupts reader and writer, for good.
func (w *interruptibleConn) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interruptLocked()
}

// interruptLocked is interrupt; w.mu is held. Only the first interrupt sets the deadline:
// after Close, the goroutine that awaits the reply owns it.
func (w *interruptibleConn) interruptLocked() {
	if !w.unusable.Load() {
		w.unusable.Store(true)
		_ = w.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// interruptClosing interrupts a command that is to end with the closing context.
func (w *interruptibleConn) interruptClosing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		w.interruptLocked()
	}
}

// awaited returns a channel that is closed when the reply to an interrupted command has
// arrived. It returns nil if none is awaited.
func (w *interruptibleConn) awaited() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replyCame
}

// Read implements [net.Conn].
func (w *interruptibleConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && w.wrote.Load() {
		w.mu.Lock()
		w.replyCame = make(chan struct{})
		w.mu.Unlock()
	}
	return n, err
}

// Write implements [net.Conn]. A partial write counts as not sent.
func (w *interruptibleConn) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.wrote.Store(err == nil)
	return n, err
}

// SetDeadline implements [net.Conn]. It changes nothing: begin and interrupt set the
// deadline, and go-redis clears it between two commands.
func (*interruptibleConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements [net.Conn]; see SetDeadline.
func (*interruptibleConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [net.Conn]; see SetDeadline.
func (*interruptibleConn) SetWriteDeadline(time.Time) error { return nil }

// Close implements [net.Conn]. Where a reply is awaited, it closes the connection after that,
// in the background.
func (w *interruptibleConn) Close() (err error) {
	w.closeOnce.Do(func() {
		w.mu.Lock()
		w.unusable.Store(true)
		replyCame := w.replyCame
		w.mu.Unlock()
		switch {
		case replyCame != nil:
			go w.awaitReply(replyCame)
		case w.wrote.Load():
			err = w.disconnect()
		default: // the peer may read no more: TLS would wait 5 s to send its goodbye
			go func() { _ = w.disconnect() }()
		}
	})
	return err
}

// awaitReply closes replyCame when the reply has arrived, or will not any more.
func (w *interruptibleConn) awaitReply(replyCame chan struct{}) {
	defer close(replyCame)
	_ = w.Conn.SetReadDeadline(time.Now().Add(controlTimeout))
	_, _ = w.Conn.Read(make([]byte, 1))
	_ = w.disconnect()
}

func (w *interruptibleConn) disconnect() error {
	w.unhook()
	return w.Conn.Close()
}
