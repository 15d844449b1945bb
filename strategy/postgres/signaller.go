package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5"
)

// maxPayload is the most bytes that NOTIFY takes, of 8000, for a signal.
const maxPayload = 7999

var errDeaf = fmt.Errorf("no connection listens (a pooler, or WithoutNotify): %w", errors.ErrUnsupported)

// signals implements driver.Listener.
type signals struct {
	subscription
	c chan driver.Signal
}

// Listen implements driver.Signaller, on the connection of the watches.
func (d *pgDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	if d.deaf.Load() {
		return nil, errDeaf
	}
	s := &signals{subscription{l: &d.listener, topic: locker}, make(chan driver.Signal, driver.SignalBuffer)}
	switch err := s.join(ctx, s); {
	case errors.Is(err, errPooler):
		d.deaf.Store(true)
		return nil, errDeaf
	case err != nil:
		return nil, storeError(err, true)
	}
	return s, nil
}

// Signal implements driver.Signaller: one statement.
func (d *pgDriver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %.80q is no claim's id", driver.ErrInvalid, s.Claim)
	}
	// The server's encoding may not have all characters of a key, and none has NUL.
	payload := fmt.Sprintf("%s %c %s %s", locker, s.Kind, s.Claim, base64.StdEncoding.EncodeToString([]byte(s.Key)))
	if len(payload) > maxPayload {
		return fmt.Errorf("%w: a key of %d bytes is too long for a signal: NOTIFY takes less than 8000 bytes, and the key is encoded", driver.ErrInvalid, len(s.Key))
	}
	_, err := d.each(ctx, notify, func(pgx.Rows) error { return nil }, payload)
	return err
}

const notify = "SELECT pg_notify('" + channel + "', $1)"

func (s *signals) C() <-chan driver.Signal { return s.c }

func (s *signals) Close() { s.leave(s) }

func (s *signals) message(text string) {
	kind, rest, _ := strings.Cut(text, " ")
	claim, encoded, ok := strings.Cut(rest, " ")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(kind) != 1 {
		return // anybody may send anything
	}
	select {
	case s.c <- driver.Signal{Kind: driver.SignalKind(kind[0]), Key: string(key), Claim: claim}:
	default: // signals may be lost
	}
}

func (s *signals) end() { close(s.c) }
