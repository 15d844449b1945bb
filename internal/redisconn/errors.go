package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Error is an error whose meaning is known. Other errors (network trouble, timeouts) are
// transient, and the command may have been carried out.
type Error struct {
	Err error
	// Permanent trouble needs a person: to try again is pointless.
	Permanent bool
	// NotApplied says that the command certainly did not take effect.
	NotApplied bool
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// notSent returns the error of a command that did not leave this process.
func notSent(err error) error {
	return &Error{Err: fmt.Errorf("it was not sent: %w", err), NotApplied: true}
}

// meaning classifies a server's error by its first word.
type meaning uint8

const (
	passing    meaning = 1 << iota // a moment's trouble of a deployment that changes its roles
	refused                        // it needs a person
	unsure                         // the slot table may be out of date
	redirected                     // another node of the cluster is the right one
	clustered                      // it comes from a node of a cluster
)

// meanings has the errors by which nothing was applied. The others are those of a script
// that failed, or OOM, MISCONF, WRONGTYPE, ...
var meanings = map[string]meaning{
	"ASK":         passing | unsure | redirected | clustered,
	"BUSY":        passing,
	"CLUSTERDOWN": passing | unsure,
	"CROSSSLOT":   clustered,
	"LOADING":     passing | unsure,
	"MASTERDOWN":  passing | unsure,
	"MOVED":       passing | unsure | redirected | clustered,
	"NOAUTH":      refused,
	"NOPERM":      refused,
	"NOPROTO":     refused,
	"NOREPLICAS":  passing,
	"NOSCRIPT":    passing, // forgotten between two commands of a batch
	"READONLY":    passing | unsure | redirected,
	"TRYAGAIN":    passing,
	"UNBLOCKED":   passing,
	"WRONGPASS":   refused,
}

// serverError returns the message of an error that the server has answered, and what it
// means; ok is false if err is none.
func serverError(err error) (msg string, m meaning, ok bool) {
	if err == nil {
		return "", 0, false
	}
	var server redis.Error
	if !errors.As(err, &server) {
		return "", 0, false
	}
	msg = server.Error()
	m = meanings[errorCode(msg)]
	if strings.Contains(msg, "max number of clients") {
		m = passing
	}
	return msg, m, true
}

func isServerError(err error) bool {
	_, _, ok := serverError(err)
	return ok
}

// IsRefusal reports whether err is an answer of the server that will be the same next time.
func IsRefusal(err error) bool {
	var e *Error
	return isServerError(err) && errors.As(classify(err), &e) && e.Permanent
}

// isRedirect reports whether err means that another node of a cluster is the right one: a
// server says so, or the client is closed.
func isRedirect(err error) bool {
	_, m, _ := serverError(err)
	return m&redirected != 0 || errors.Is(err, redis.ErrClosed)
}

// classify makes an Error of an error of go-redis whose meaning is known.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if msg, m, ok := serverError(err); ok {
		switch {
		case m&(passing|refused) != 0:
			return &Error{Err: err, Permanent: m&refused != 0, NotApplied: true}
		case strings.Contains(msg, "a non local key"), strings.Contains(msg, "while the cluster is down"):
			return err // in the middle of a script: its slot is on the move
		}
		return &Error{Err: err, Permanent: true}
	}
	var op *net.OpError
	isOp := errors.As(err, &op)
	switch {
	case isTLS(err), errors.Is(err, redis.ErrClosed), errors.Is(err, errKeyDB):
		return &Error{Err: err, Permanent: true, NotApplied: true}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isOp && op.Op == "dial":
		return &Error{Err: err, NotApplied: true}
	}
	return err
}

// isTLS reports whether one side does not trust the other. Nothing was carried out then.
func isTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	var timeout net.Error
	return errors.As(err, &cert) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") ||
		// go-redis takes an alert of the handshake out of its OpError.
		strings.HasPrefix(err.Error(), "tls: ") && !(errors.As(err, &timeout) && timeout.Timeout())
}

// errorCode returns the first word of a server's error. Redis 6 hides that of a command
// called by a script: "ERR Error running script (...): @user_script:7: -OOM ...".
func errorCode(msg string) string {
	if strings.HasPrefix(msg, "ERR ") && strings.Contains(msg, "user_script") {
		if i := strings.LastIndex(msg, ": -"); i >= 0 {
			msg = msg[i+3:]
		}
	}
	code, _, _ := strings.Cut(msg, " ")
	return code
}
