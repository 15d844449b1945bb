package soak

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/distlock/locker"
)

// recordKind says what a record of a worker's log tells.
type recordKind uint8

const (
	recLock     recordKind = iota + 1 // Lock or TryLock is called
	recGranted                        // it has returned a lease
	recRefused                        // it has failed
	recAsk                            // at `at` the lease was asked whether it is held
	recLost                           // Lost was seen closed
	recRenew                          // Renew is called
	recRenewed                        // it has returned
	recUnlock                         // Unlock is called
	recUnlocked                       // it has returned
	recWrite                          // at `at` the resource was written to
	recClose                          // the lease's Locker is closed
	recClosed                         // Close has returned
	recWrong                          // something was answered as it never must; stderr has the words
)

func (k recordKind) String() string {
	return [...]string{
		"?", "Lock", "granted", "not granted", "asked", "Lost seen", "Renew", "Renew returned",
		"Unlock", "Unlock returned", "write", "Close", "Close returned", "wrong",
	}[k]
}

// flags of a call, repeated in each of its records.
type flags uint8

const (
	flagTry       flags = 1 << iota // TryLock
	flagLimited                     // WithMaxHold or WithMaxRenewals
	flagInner                       // re-entry: the outer lease has the same op
	flagCtx                         // the wait is bounded by ctx, not by WithWait
	flagUnrenewed                   // WithoutRenewal
	flagYes                         // recAsk: held; recWrite: accepted
	flagUnfenced                    // WithoutFencing
	flagGuest                       // by a Locker of its own
)

// result is how a call ended.
type result uint8

const (
	resOK result = iota
	resNotAcquired
	resUnavailable
	resLost
	resNotHeld
	resFull     // unavailable, because the server is out of memory, as it says
	resConflict // what is at the key is no lock
	resOther    // an error that nothing in the workload calls for
)

// available reports whether the store gave an answer.
func (r result) available() bool { return r != resUnavailable && r != resFull }

func (r result) String() string {
	return [...]string{"ok", "ErrNotAcquired", "ErrUnavailable", "ErrLost", "ErrNotHeld", "ErrUnavailable (out of memory)", "ErrConflict", "an unexpected error"}[r]
}

func resultOf(err error) result {
	switch {
	case err == nil:
		return resOK
	case errors.Is(err, locker.ErrNotAcquired):
		return resNotAcquired
	case errors.Is(err, locker.ErrUnavailable) && saysFull(err.Error()):
		return resFull
	case errors.Is(err, locker.ErrUnavailable):
		return resUnavailable
	case errors.Is(err, locker.ErrConflict):
		return resConflict
	case errors.Is(err, locker.ErrLost):
		return resLost
	case errors.Is(err, locker.ErrNotHeld):
		return resNotHeld
	}
	return resOther
}

// saysFull reports whether a server has said that it is out of memory.
func saysFull(text string) bool {
	return strings.Contains(text, "OOM") || strings.Contains(text, "out of memory")
}

// team is an owner whom all processes name on some keys, so that they share its holds
// where the strategy keeps them in the store. 0 is none: each caller for himself.
type team uint8

// record is one line of a worker's log. An op is one Lock and what follows from it.
type record struct {
	kind     recordKind
	flags    flags
	result   result
	team     team
	caller   uint16
	key      uint16
	op       uint32
	ttl      uint32 // recLock: ms
	wait     uint32 // recLock: ms; recGranted: µs until the lease is over by a limit, 0: none
	at       instant
	token    int64
	deadline instant // the lease's; recWrite: when the answer came
}

const recordSize = 48

func (r *record) encode(b *[recordSize]byte) {
	b[0], b[1], b[2], b[3] = byte(r.kind), byte(r.flags), byte(r.result), byte(r.team)
	le := binary.LittleEndian
	le.PutUint16(b[4:], r.caller)
	le.PutUint16(b[6:], r.key)
	le.PutUint32(b[8:], r.op)
	le.PutUint32(b[12:], r.ttl)
	le.PutUint32(b[16:], r.wait)
	le.PutUint64(b[24:], uint64(r.at))
	le.PutUint64(b[32:], uint64(r.token))
	le.PutUint64(b[40:], uint64(r.deadline))
}

func (r *record) decode(b []byte) {
	le := binary.LittleEndian
	*r = record{
		kind: recordKind(b[0]), flags: flags(b[1]), result: result(b[2]), team: team(b[3]),
		caller: le.Uint16(b[4:]), key: le.Uint16(b[6:]), op: le.Uint32(b[8:]),
		ttl: le.Uint32(b[12:]), wait: le.Uint32(b[16:]),
		at: instant(le.Uint64(b[24:])), token: int64(le.Uint64(b[32:])), deadline: instant(le.Uint64(b[40:])),
	}
}

// logFile is a worker's log. Each record is handed to the kernel at once, so that
// the log of a killed process says all that it did: an Unlock that is missing there
// would look as if the lease had been held on.
type logFile struct{ f *os.File }

func createLog(path string) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	return &logFile{f}, err
}

func (l *logFile) add(r record) {
	var b [recordSize]byte
	r.encode(&b)
	if _, err := l.f.Write(b[:]); err != nil {
		panic("soak: the log cannot be written: " + err.Error())
	}
}

// readLog calls f for each record of the log at path.
func readLog(path string, f func(record)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 4096*recordSize)
	for {
		n, err := io.ReadFull(file, buf)
		var r record
		for b := buf[:n]; len(b) >= recordSize; b = b[recordSize:] {
			r.decode(b)
			f(r)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
