package postgres

import (
	"errors"
	"slices"
	"strings"

	"github.com/distlock/locker/driver"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// Conditions of SQLSTATE.
const (
	undefinedTable       = "42P01"
	undefinedColumn      = "42703"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	diskFull             = "53100"
	limitExceeded        = "54000" // with NOTIFY: its queue is full
	readOnly             = "25006"
)

func hasCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// missing returns the table that err says is missing.
func (s *statements) missing(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(e.Message, s.permits.plain) {
		return s.permits.table
	}
	return s.table
}

// isRolledBack says whether the server has rolled a statement back because of what else was
// under way, whatever the row: at a level stricter than READ COMMITTED it does so for keys that
// nobody else wants, too.
func isRolledBack(err error) bool { return hasCode(err, serializationFailure, deadlockDetected) }

// isElsewhere reports whether a statement waited too long, and for no row: a wait for a row has a context. On a busy machine
// that is the turn to add a page to the table or to an index, and it shows nothing about the key. (It may be the
// queue for a row, too, behind others that wait for that; they leave it one by one.)
func isElsewhere(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == lockNotAvailable && e.Where == ""
}

// isPermanent says whether trying again is pointless: wrong credentials, no such
// database, no permission, another table of that name, a full disk.
func isPermanent(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && len(e.Code) == 5 {
		return strings.Contains("28 3D 3F 42", e.Code[:2]) || e.Code == diskFull
	}
	return errors.Is(err, puddle.ErrClosedPool)
}

// storeError classifies the error of a command. An ERROR of the server has
// rolled the statement back; anything worse may have ended the session after the commit.
func storeError(err error, notSent bool) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	rolledBack := errors.As(err, &e) && e.SeverityUnlocalized == "ERROR"
	return &driver.StoreError{Err: err, Permanent: isPermanent(err), NotApplied: notSent || rolledBack || pgconn.SafeToRetry(err)}
}
