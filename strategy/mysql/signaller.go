package mysql

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

const (
	// signalsEvery is how often a Locker that listens looks for signals.
	signalsEvery = 100 * time.Millisecond
	// signalKept is how long a signal is kept that nobody looks for.
	signalKept = 10 * time.Second
	// signalsTimeout is for a look. The driver's Close waits for that.
	signalsTimeout = 900 * time.Millisecond
)

// A signal is a row. Its hash is the first half of the hash of the Locker's UUID and 16 random bytes, so that
// the signals to a Locker are a range of the primary key, in which no key of a lock is but by a chance of one in 2^128.

func signalsOf(locker string) []byte {
	hash := sha256.Sum256([]byte("locker:signals:" + locker))
	return hash[:16]
}

// signals implements driver.Listener. It looks for rows, passes them on and deletes them. A row that
// it could not delete arrives again.
type signals struct {
	c    chan driver.Signal
	once sync.Once
	over chan struct{}
}

// Listen implements driver.Signaller. Signals wait in the table for the first look.
func (d *mysqlDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	s := &signals{c: make(chan driver.Signal, driver.SignalBuffer), over: make(chan struct{})}
	if err := d.look(ctx, locker, s); err != nil {
		return nil, err
	}
	d.listens.Go(func() {
		defer close(s.c)
		for bound.Sleep(context.Background(), s.over, signalsEvery) {
			ctx, cancel := context.WithTimeout(context.Background(), signalsTimeout)
			err := d.look(ctx, locker, s)
			cancel()
			if err != nil {
				return // the Locker listens anew
			}
		}
	})
	return s, nil
}

// look passes on the signals that are there: one statement, and one more if there are some.
func (d *mysqlDriver) look(ctx context.Context, locker string, s *signals) error {
	first := signalsOf(locker)
	from, to := append(slices.Clone(first), make([]byte, 16)...), append(slices.Clone(first), slices.Repeat([]byte{0xff}, 16)...)
	return d.do(ctx, d.others, func(conn *sql.Conn) error {
		var there []string
		_, err := rows(ctx, conn, fmt.Sprintf(d.sql.signals, from, to, driver.SignalBuffer), func(scan scanner) error {
			var hash []byte
			var sig driver.Signal
			var kind string
			if err := scan(&hash, &sig.Key, &sig.Claim, &kind); err != nil {
				return err
			}
			there = append(there, fmt.Sprintf("x'%x'", hash))
			if len(kind) != 1 {
				return nil
			}
			sig.Kind = driver.SignalKind(kind[0])
			select {
			case s.c <- sig:
			default: // signals may be lost
			}
			return nil
		})
		if err == nil && len(there) > 0 {
			_, err = exec(ctx, conn, fmt.Sprintf(d.sql.heard, strings.Join(there, ", ")))
		}
		return err
	})
}

// C implements driver.Listener.
func (s *signals) C() <-chan driver.Signal { return s.c }

// Close implements driver.Listener. A look that is under way ends by itself.
func (s *signals) Close() { s.once.Do(func() { close(s.over) }) }

// Signal implements driver.Signaller: one statement.
func (d *mysqlDriver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %.80q is no claim's id", driver.ErrInvalid, s.Claim)
	}
	hash := signalsOf(locker)
	hash = append(hash, make([]byte, 16)...)
	_, _ = rand.Read(hash[16:]) // it never fails
	stmt := fmt.Sprintf(d.sql.signal, hash, s.Key, s.Claim, string(rune(s.Kind)))
	return d.do(ctx, d.others, func(conn *sql.Conn) error {
		_, err := exec(ctx, conn, stmt)
		return err
	})
}
