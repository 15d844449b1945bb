package soak

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/distlock/locker"
)

// kind says what a record of a worker's log tells.
type kind uint8

const (
	recLock     kind = iota + 1 // Lock or TryLock is called
	recGranted                  // it has returned a lease
	recRefused                  // it has failed
	recAsk                      // at the record's time the lease was asked whether it is held
	recLost                     // Lost was seen closed
	recRenew                    // Renew is called
	recRenewed                  // it has returned
	recUnlock                   // Unlock is called
	recUnlocked                 // it has returned
	recWriting                  // a write to the resource is sent
	recWrite                    // it was answered
	recBreak                    // ForceUnlock is called
	recBroken                   // it has returned
)

func (k kind) String() string {
	return [...]string{"?", "Lock", "granted", "not granted", "asked", "Lost seen", "Renew", "Renew returned", "Unlock", "Unlock returned", "a write is sent", "write", "ForceUnlock", "ForceUnlock returned"}[k]
}

// flags of a call are repeated in each of its records.
type flags uint8

const (
	flagTry   flags = 1 << iota // TryLock
	flagInner                   // re-entry: the outer lease has the same op
	flagYes                     // recAsk: held; recWrite: accepted
)

// result is how a call ended.
type result uint8

const (
	resOK result = iota
	resNotAcquired
	resUnavailable
	resLost
	resOther // an error that nothing in the workload calls for
)

func (r result) String() string {
	return [...]string{"ok", "ErrNotAcquired", "ErrUnavailable", "ErrLost", "an unexpected error"}[r]
}

func resultOf(err error) result {
	switch {
	case err == nil:
		return resOK
	case errors.Is(err, locker.ErrNotAcquired):
		return resNotAcquired
	case errors.Is(err, locker.ErrUnavailable):
		return resUnavailable
	case errors.Is(err, locker.ErrLost):
		return resLost
	}
	return resOther
}

// record is one line of a worker's log. An op is one Lock and what follows from it. (The
// fields are exported for package binary.)
type record struct {
	Kind         kind
	Flags        flags
	Result       result
	Strategy     uint8 // of the arena
	Caller, Key  uint16
	Op           uint32
	TTL, Wait    uint32 // recLock: ms
	Permits      uint32 // recLock: how many it asks for; 0 of a lock
	At, Deadline instant
	Token        int64
}

// isCall reports whether the record is the begin of a call.
func (r record) isCall() bool { return r.Kind == recLock || r.Kind == recRenew || r.Kind == recUnlock }

// isCalledFor reports whether a call of its kind may end with this result. What has to have happened for
// it is for the checker.
func (r record) isCalledFor() bool {
	switch r.Result {
	case resOK:
		return r.Kind != recRefused
	case resUnavailable:
		return true
	case resNotAcquired:
		return r.Kind == recRefused
	case resLost:
		return r.Kind != recRefused || r.Flags&flagInner != 0 // a Lock without an owner has nothing to lose
	}
	return false
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
	b, err := binary.Append(nil, binary.LittleEndian, &r)
	if err == nil {
		_, err = l.f.Write(b)
	}
	if err != nil {
		panic("soak: the log cannot be written: " + err.Error())
	}
}

// readLog calls f for each record of the log at path. Half a record at its end is left out.
func readLog(path string, f func(record)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for in := bufio.NewReaderSize(file, 1<<18); ; {
		var r record
		switch err := binary.Read(in, binary.LittleEndian, &r); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		f(r)
	}
}
