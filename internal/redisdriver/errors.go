package redisdriver

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// meaning is what a server's error means, by its first word.
type meaning uint8

const (
	passing   meaning = 1 << iota // a moment's trouble of a deployment that changes its roles
	refused                       // it needs a person
	unsure                        // who has which slots
	elsewhere                     // another node of the cluster is the right one
	clustered                     // it comes from a node of a cluster
)

// meanings are those of errors by which nothing was applied. The others are of a script
// that failed, or OOM, MISCONF, WRONGTYPE, ...
var meanings = map[string]meaning{
	"ASK":         passing | unsure | elsewhere | clustered,
	"BUSY":        passing,
	"CLUSTERDOWN": passing | unsure,
	"CROSSSLOT":   clustered,
	"LOADING":     passing | unsure,
	"MASTERDOWN":  passing | unsure,
	"MOVED":       passing | unsure | elsewhere | clustered,
	"NOAUTH":      refused,
	"NOPERM":      refused,
	"NOPROTO":     refused,
	"NOREPLICAS":  passing,
	"READONLY":    passing | unsure | elsewhere,
	"TRYAGAIN":    passing,
	"UNBLOCKED":   passing,
	"WRONGPASS":   refused,
}

// answer is what a server has answered; ok is false if err is no answer.
func answer(err error) (msg string, m meaning, ok bool) {
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

func isAnswer(err error) bool {
	_, _, ok := answer(err)
	return ok
}

// isRefusal tells answers that will be the same next time.
func isRefusal(err error) bool { return isAnswer(err) && driver.IsPermanent(classify(err)) }

// isElsewhere tells answers, and the end of a client, that say that another node of a
// cluster is the right one.
func isElsewhere(err error) bool {
	_, m, _ := answer(err)
	return m&elsewhere != 0 || errors.Is(err, redis.ErrClosed)
}

// classify says what an error of go-redis means to the Locker. Network trouble
// and timeouts stay as they are: transient, and the command may have been
// applied.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if msg, m, ok := answer(err); ok {
		switch {
		case m&(passing|refused) != 0:
			return &driver.StoreError{Err: err, Permanent: m&refused != 0, NotApplied: true}
		case strings.Contains(msg, "a non local key"), strings.Contains(msg, "while the cluster is down"):
			return err // in the middle of a script: its slot is on the move
		}
		return &driver.StoreError{Err: err, Permanent: true}
	}
	var op *net.OpError
	isOp := errors.As(err, &op)
	switch {
	case isTLS(err), errors.Is(err, redis.ErrClosed):
		return &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isOp && op.Op == "dial":
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return err
}

// isTLS tells that one side does not trust the other. Nothing was executed then.
func isTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	var timeout net.Error
	return errors.As(err, &cert) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") ||
		// go-redis takes what is wrong at the handshake out of its OpError.
		strings.HasPrefix(err.Error(), "tls: ") && !(errors.As(err, &timeout) && timeout.Timeout())
}

// errorCode is the first word of a server's error. Redis 6 hides that of a
// command called by a script: "ERR Error running script (...): @user_script:7: -OOM ...".
func errorCode(msg string) string {
	if strings.HasPrefix(msg, "ERR ") && strings.Contains(msg, "user_script") {
		if i := strings.LastIndex(msg, ": -"); i >= 0 {
			msg = msg[i+3:]
		}
	}
	code, _, _ := strings.Cut(msg, " ")
	return code
}
