package redisdriver

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// classify says what an error of go-redis means to the Locker. Network trouble
// and timeouts stay as they are: transient, and the command may have been
// applied.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var server redis.Error
	if errors.As(err, &server) {
		switch code := errorCode(server.Error()); code {
		case "LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS", "UNBLOCKED":
			// A moment's trouble of a deployment that changes its roles.
			return &driver.StoreError{Err: err, NotApplied: true}
		case "NOAUTH", "WRONGPASS", "NOPERM", "NOPROTO":
			return &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
		default:
			if strings.Contains(server.Error(), "max number of clients") {
				return &driver.StoreError{Err: err, NotApplied: true}
			}
			// In the middle of a script: its slot is on the move.
			if msg := server.Error(); strings.Contains(msg, "a non local key") || strings.Contains(msg, "while the cluster is down") {
				return err
			}
			// OOM, MISCONF, WRONGTYPE, a script that failed, ...
			return &driver.StoreError{Err: err, Permanent: true}
		}
	}
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	isOp := errors.As(err, &op)
	switch {
	case errors.As(err, &cert), isOp && (op.Op == "remote error" || op.Op == "local error"):
		// TLS: one side does not trust the other. Nothing was executed.
		return &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
	case errors.Is(err, redis.ErrClosed):
		return &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		isOp && op.Op == "dial":
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return err
}

// isDial tells that there was no connection.
func isDial(err error) bool {
	var op *net.OpError
	return isEnd(err) || errors.As(err, &op) && op.Op == "dial"
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
