package redlock

import (
	"context"
	"errors"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
)

// pool is a node to redsync.
type pool struct {
	d *quorumDriver
	i int
}

func (p pool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	o, ok := ctx.Value(opKey{}).(*op)
	if !ok {
		return nil, errors.New("redlock: not one of our operations")
	}
	return conn{o, p.i}, nil
}

// conn is one node's part in one operation.
type conn struct {
	o *op
	i int
}

var errUnused = errors.New("redlock: redsync does not call this")

func (conn) Get(string) (string, error)                          { return "", errUnused }
func (conn) Set(string, string) (bool, error)                    { return false, errUnused }
func (conn) ScriptLoad(*redsyncredis.Script) error               { return errUnused }
func (conn) PTTL(string) (time.Duration, error)                  { return 0, errUnused }
func (conn) Close() error                                        { return nil }
func (c conn) SetNX(string, string, time.Duration) (bool, error) { return c.do() }

func (c conn) Eval(*redsyncredis.Script, ...interface{}) (interface{}, error) {
	if c.o.kind == opAcquire {
		// redsync cleaning up after an attempt; we do, in order and for as long
		// as it takes.
		return int64(1), nil
	}
	ok, err := c.do()
	if ok {
		return int64(1), err
	}
	return int64(0), err
}

// do sends the operation to the node.
func (c conn) do() (bool, error) {
	o, d := c.o, c.o.d
	var a answer
	if c.i == o.ahead {
		a = <-o.early
	} else {
		a = o.ask(c.i)
	}
	confirmed := o.record(c.i, a)
	switch {
	case o.kind == opRelease:
		d.releaseLater(o.hold, c.i, o.req.Claim) // if need be
	case confirmed:
		d.rejoin(o.hold, c.i, o.req.Claim) // likewise
	}
	return a.state == yes, a.err
}
