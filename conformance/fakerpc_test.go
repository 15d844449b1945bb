package conformance_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/soak"
)

func TestMain(m *testing.M) {
	soak.ServeWorker(soaked()...)
	// The stores are in memory: there is less to do while a case waits than with servers.
	_ = flag.Set("test.parallel", strconv.Itoa(16*runtime.GOMAXPROCS(0)))
	conformance.Main(m, newRemoteLocker)
}

// serveStore lets other processes use d, and returns where.
func serveStore(tb testing.TB, d driver.Driver) (addr string) {
	tb.Helper()
	// Not tb.TempDir, whose names can be too long for a socket.
	dir, err := os.MkdirTemp("", "fake") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	srv := rpc.NewServer()
	if err := srv.Register(&Remote{d}); err != nil {
		tb.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go srv.ServeConn(c)
		}
	}()
	return l.Addr().String()
}

// Remote is the store's side. It is exported for net/rpc.
type Remote struct{ d driver.Driver }

// Command is a driver's call.
type Command struct {
	Op      conformance.Op
	Request driver.Request
	Holder  driver.Holder
	Holds   int
}

// Calls of a driver that the suite never holds up.
const (
	opClose   conformance.Op = "close"
	opInspect conformance.Op = "inspect"
	opBreak   conformance.Op = "break"
)

// Steps of drivers that do in two what has to be one.
const (
	opLook conformance.Op = "look" // who holds the key
	opPut  conformance.Op = "put"  // whoever holds it
	opDrop conformance.Op = "drop" // likewise
)

// inSteps is a driver that can be taken apart.
type inSteps interface {
	look(ctx context.Context, key string) (id string, err error)
	put(ctx context.Context, c driver.Claim) error
	drop(ctx context.Context, key string) error
}

// Reply is what became of it.
type Reply struct {
	Answer     driver.Answer
	Holder     driver.Holder
	Err        string
	Lost       bool
	Conflict   bool
	Permanent  bool
	NotApplied bool
}

// Do runs c.
func (r *Remote) Do(c Command, reply *Reply) (_ error) {
	ctx := context.Background()
	var err error
	switch c.Op {
	case conformance.OpAcquire:
		reply.Answer, err = r.d.Acquire(ctx, c.Request)
	case conformance.OpRenew:
		r.d.Renew(ctx, []driver.Claim{c.Request.Claim}, func(_ int, e error) { err = e })
	case conformance.OpRelease:
		err = r.d.Release(ctx, c.Request.Claim)
	case opLook:
		reply.Answer.Owner, err = r.d.(inSteps).look(ctx, c.Request.Key)
	case opPut:
		err = r.d.(inSteps).put(ctx, c.Request.Claim)
	case opDrop:
		err = r.d.(inSteps).drop(ctx, c.Request.Key)
	case opInspect:
		reply.Holder, err = r.d.(driver.Inspector).Inspect(ctx, c.Holder.Key)
	case opBreak:
		err = r.d.(driver.Inspector).Break(ctx, c.Holder)
	case opClose:
		err = r.d.Close()
	case conformance.OpSetHolds:
		if counter, ok := r.d.(driver.HoldCounter); ok {
			err = counter.SetHolds(ctx, c.Request.Claim, c.Holds)
		}
	}
	if err != nil {
		reply.Err, reply.Lost, reply.Conflict = err.Error(), errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrConflict)
		var refined *driver.StoreError
		if errors.As(err, &refined) {
			reply.Permanent, reply.NotApplied = refined.Permanent, refined.NotApplied
		}
	}
	return nil
}

// remote is a driver in another process. It polls.
type remote struct {
	send  func(ctx context.Context, c Command) (Reply, error)
	close func() error
}

func newRemoteLocker(addr string, opts ...locker.Option) (locker.Locker, error) {
	c, err := rpc.Dial("unix", addr)
	if err != nil {
		return nil, err
	}
	send := func(ctx context.Context, command Command) (Reply, error) {
		var reply Reply
		call := c.Go("Remote.Do", command, &reply, make(chan *rpc.Call, 1))
		select {
		case <-call.Done:
			return reply, call.Error
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
	}
	return locker.New(remote{send, c.Close}, opts...)
}

type remoteError struct {
	Reply
}

func (e remoteError) Error() string { return e.Err }
func (e remoteError) Is(target error) bool {
	return e.Lost && target == locker.ErrLost || e.Conflict && target == locker.ErrConflict
}

func (r remote) ask(ctx context.Context, c Command) (Reply, error) {
	reply, err := r.send(ctx, c)
	switch {
	case err != nil:
		return Reply{}, err
	case reply.Permanent || reply.NotApplied:
		return Reply{}, &driver.StoreError{Err: remoteError{reply}, Permanent: reply.Permanent, NotApplied: reply.NotApplied}
	case reply.Err != "":
		return Reply{}, remoteError{reply}
	}
	return reply, nil
}

func (r remote) do(ctx context.Context, c Command) (driver.Answer, error) {
	reply, err := r.ask(ctx, c)
	return reply.Answer, err
}

func (r remote) Name() string { return "remote fake" }
func (r remote) Close() error { return r.close() }

func (r remote) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return r.do(ctx, Command{Op: conformance.OpAcquire, Request: req})
}

func (r remote) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	for i, c := range claims {
		_, err := r.do(ctx, Command{Op: conformance.OpRenew, Request: driver.Request{Claim: c}})
		answer(i, err)
	}
}

func (r remote) Release(ctx context.Context, c driver.Claim) error {
	_, err := r.do(ctx, Command{Op: conformance.OpRelease, Request: driver.Request{Claim: c}})
	return err
}

func (r remote) look(ctx context.Context, key string) (string, error) {
	a, err := r.do(ctx, Command{Op: opLook, Request: driver.Request{Claim: driver.Claim{Key: key}}})
	return a.Owner, err
}

func (r remote) put(ctx context.Context, c driver.Claim) error {
	_, err := r.do(ctx, Command{Op: opPut, Request: driver.Request{Claim: c}})
	return err
}

func (r remote) drop(ctx context.Context, key string) error {
	_, err := r.do(ctx, Command{Op: opDrop, Request: driver.Request{Claim: driver.Claim{Key: key}}})
	return err
}

func (r remote) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	_, err := r.do(ctx, Command{Op: conformance.OpSetHolds, Request: driver.Request{Claim: c}, Holds: n})
	return err
}
