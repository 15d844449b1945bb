package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// channel carries the hash of each key that was freed, in hex, and signals: the UUID of a
	// Locker, a space, and a signal about a claim of that Locker.
	channel = "locker_released"
	// linger is how long a connection without watches is kept for the next one.
	linger = time.Second
	// silence is how long a connection may be silent before it is asked whether it lives.
	silence = 15 * time.Second
	// connecting is how long a connection may take until it listens.
	connecting = 5 * time.Second
)

var (
	errPooler = errors.New("a pooler is between this process and the server")
	errClosed = errors.New("the driver is closed")
)

// listener has one connection while there are subscriptions. It does not connect again by
// itself: when the connection ends so do they, and the Locker opens new ones.
type listener struct {
	own  string // of the prototype: the Locker's channel
	pool *pgxpool.Pool
	runs sync.WaitGroup

	mu      sync.Mutex
	current *session // nil: none
	closed  bool
}

// session is a connection that listens.
type session struct {
	end     context.CancelFunc
	ready   chan struct{}              // closed when it listens, or has failed
	err     error                      // after ready: why it failed
	members map[string]map[member]bool // by topic; of listener.mu; nil when it is over
}

// member hears the messages on a topic, under listener.mu.
type member interface {
	message(string)
	end() // no more will come
}

// subscription is a member's place. A topic is the first word of the messages.
type subscription struct {
	l     *listener
	s     *session // nil: nothing is signalled
	topic string
}

// watch implements driver.Watch.
type watch struct {
	wake.Signal
	subscription
}

func (w *watch) Close() { w.leave(w) }

func (w *watch) message(string) { w.Send() }

func (w *watch) end() { close(w.Signal) }

// Watch implements driver.Notifier.
func (d *pgDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if d.deaf.Load() {
		return &watch{}, nil
	}
	hash := sha256.Sum256([]byte(key))
	w := &watch{wake.New(), subscription{l: &d.listener, topic: hex.EncodeToString(hash[:])}}
	err := w.join(ctx, w)
	switch {
	case errors.Is(err, errPooler):
		d.deaf.Store(true) // Acquire says so from now on
		return &watch{}, nil
	case err != nil:
		return nil, storeError(err, true)
	}
	return w, nil
}

// join subscribes m, and returns when the server listens.
func (p *subscription) join(ctx context.Context, m member) error {
	if err := p.add(m); err != nil {
		return err
	}
	select {
	case <-p.s.ready:
		return p.s.err
	case <-ctx.Done():
		p.leave(m)
		return ctx.Err()
	}
}

func (p *subscription) add(m member) error {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if l.current == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s := &session{end: cancel, ready: make(chan struct{}), members: make(map[string]map[member]bool)}
		l.current = s
		l.runs.Go(func() { l.run(ctx, s) })
	}
	p.s = l.current
	if p.s.members[p.topic] == nil {
		p.s.members[p.topic] = make(map[member]bool)
	}
	p.s.members[p.topic][m] = true
	return nil
}

func (l *listener) run(ctx context.Context, s *session) {
	defer s.end()
	var conn *pgx.Conn
	if conn, s.err = l.listen(ctx); s.err == nil {
		close(s.ready)
		for l.signal(ctx, conn, s) {
		}
		hangUp(conn)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == s {
		l.current = nil
	}
	if s.err != nil { // no member was handed out
		close(s.ready)
	}
	for _, same := range s.members {
		for m := range same {
			m.end()
		}
	}
	s.members = nil
}

// listen connects as the pool does, and returns a connection that listens.
func (l *listener) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	cfg := l.pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	cfg.ConnConfig.OnNotification = nil // or WaitForNotification would wait for ever
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	var pid uint32
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		err = errPooler // a pooler makes up the id that it returns
	}
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+channel, pgx.QueryExecModeExec)
		if l.own != "" && err == nil {
			_, err = conn.Exec(ctx, `LISTEN "locker_`+l.own+`"`, pgx.QueryExecModeExec)
		}
	}
	if err != nil {
		hangUp(conn)
		return nil, fmt.Errorf("listening for releases: %w", err)
	}
	return conn, nil
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}

// signal passes on the next message of the server. It returns false when conn or ctx has ended.
func (l *listener) signal(ctx context.Context, conn *pgx.Conn, s *session) bool {
	wait, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err != nil {
		if ctx.Err() != nil || conn.IsClosed() {
			return false
		}
		ping, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		return conn.Ping(ping) == nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	topic, message, _ := strings.Cut(n.Payload, " ")
	for m := range s.members[topic] {
		m.message(message)
	}
	return true
}

// hangUp ends the connection; the Locker opens the subscriptions anew.
func (l *listener) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		l.current.end()
	}
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	if l.current != nil {
		l.current.end()
	}
	l.mu.Unlock()
	l.runs.Wait()
}

// leave ends m's subscription. The connection is left to the next member for a while.
func (p *subscription) leave(m member) {
	l, s := p.l, p.s
	if s == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(s.members[p.topic], m)
	if len(s.members[p.topic]) == 0 {
		delete(s.members, p.topic)
	}
	if len(s.members) > 0 {
		return
	}
	time.AfterFunc(linger, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(s.members) == 0 {
			s.end()
			if l.current == s {
				l.current = nil // the next member does not get one that ends
			}
		}
	})
}
