package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
)

var mutexOptions = []redsync.Option{
	redsync.WithTries(1),
	redsync.WithFailFast(true),    // a majority is enough; the rest goes on
	redsync.WithTimeoutFactor(1),  // nodes have their own timeouts
	redsync.WithDriftFactor(0.01), // the Locker's, too
}

// newMutex is redsync's view of an operation, by pools that are made for it: the nodes'
// parts.
func (o *op) newMutex() *redsync.Mutex {
	pools := make([]redsyncredis.Pool, len(o.parts))
	for i := range o.parts {
		pools[i] = &o.parts[i]
	}
	req := &o.hold.req
	return redsync.New(pools...).NewMutex(req.Key, append(slices.Clip(mutexOptions),
		redsync.WithExpiry(req.TTL),
		redsync.WithGenValueFunc(func() (string, error) { return req.ID, nil }),
		redsync.WithValue(req.ID),
	)...)
}

var (
	errUnused     = errors.New("redlock: redsync does not call this")
	errNotAsked   = errors.New("redlock: the node was not needed")
	errNotOne     = errors.New("redlock: nodes have different holders")
	errNotGranted = errors.New("redlock: the node has not granted it")
)

// Get implements [redsyncredis.Pool].
func (p *part) Get(context.Context) (redsyncredis.Conn, error) { return conn{p}, nil }

type conn struct{ *part }

// Get implements [redsyncredis.Conn], as do the following.
func (conn) Get(string) (string, error)            { return "", errUnused }
func (conn) Set(string, string) (bool, error)      { return false, errUnused }
func (conn) ScriptLoad(*redsyncredis.Script) error { return errUnused }
func (conn) PTTL(string) (time.Duration, error)    { return 0, errUnused }
func (conn) Close() error                          { return nil }

// SetNX acquires: redsync calls it.
func (c conn) SetNX(string, string, time.Duration) (bool, error) {
	if c.o.kind != opAcquire {
		return false, errUnused
	}
	return c.do()
}

// Eval does the rest, and cleans up.
func (c conn) Eval(*redsyncredis.Script, ...any) (any, error) {
	do := c.do
	if c.o.kind == opAcquire {
		do = c.cleanUp
	}
	if ok, err := do(); !ok {
		return int64(0), err
	}
	return int64(1), nil
}

// isTaken says whether redsync's error means "not ours on a majority".
func isTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}
