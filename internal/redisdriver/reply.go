package redisdriver

import (
	"fmt"
	"math"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// answerOf reads the reply of an Acquire script that asked for that many tokens; [Protocol]
// has the replies.
func answerOf(reply any, tokens int) (driver.Answer, error) {
	r, _ := reply.([]any)
	if len(r) < 2 {
		return driver.Answer{}, unexpected(reply)
	}
	switch r[0] {
	case int64(1):
		if token, ok := r[1].(int64); ok {
			a := driver.Answer{Granted: true, Token: token}
			if token != 0 {
				a.Tokens = max(tokens, 1)
				if len(r) > 2 { // fewer were reserved
					few, _ := r[2].(int64)
					a.Tokens = int(few)
				}
			}
			return a, nil
		}
	case int64(0):
		if pttl, ok := r[1].(int64); ok && len(r) > 2 {
			a := driver.Answer{Remaining: remaining(pttl), NoWakeUp: r[2] == int64(1)}
			if len(r) > 3 {
				a.Owner, _ = r[3].(string)
				a.Asked = len(r) > 4
			}
			return a, nil
		}
	case int64(-1):
		return driver.Answer{}, fmt.Errorf("%w: it is a %v; it is left alone", locker.ErrConflict, r[1])
	}
	return driver.Answer{}, unexpected(reply)
}

// remaining returns the rest of a TTL by what PTTL replied, rounded up; 0 for a key that never
// expires, or is gone, or lasts for longer than a Duration can hold.
func remaining(pttl int64) time.Duration {
	if pttl < 0 || pttl >= math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(pttl+1) * time.Millisecond
}

func verdict(reply any) error {
	_, err := listeners(reply)
	return err
}

// listeners returns how many were sent a release, by its reply.
func listeners(reply any) (int, error) {
	switch n, ok := reply.(int64); {
	case ok && n > 0:
		return int(n - 1), nil
	case ok && n == 0:
		return 0, errLost
	}
	return 0, unexpected(reply)
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", locker.ErrLost)

func unexpected(reply any) error {
	return &driver.StoreError{Err: fmt.Errorf("unexpected reply %v of a script", reply), Permanent: true}
}
