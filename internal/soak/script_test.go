package soak

import (
	"slices"
	"time"
)

// script is what processes log, in milliseconds. Each line is one record of p0 or p1.
type script []step

type step struct {
	proc int
	at   int
	rec  record
}

func lock(proc, at, op int, f flags) step {
	return step{proc, at, record{kind: recLock, flags: f, op: uint32(op), caller: uint16(op), ttl: 300, wait: 2000}}
}

// outlasting is a lease that ends in use, not renewed.
func outlasting(at, op int) script {
	deadline := at + 298
	return script{
		lock(0, at, op, 0), granted(0, at+1, op, int64(op), deadline), asked(0, at+299, op, deadline, 0),
		unlock(0, at+302, op, deadline), unlocked(0, at+303, op, resLost),
	}
}

// limited is a grant that is over after so many milliseconds.
func limited(ms int, s step) step {
	s.rec.wait = uint32(ms * 1000)
	return s
}

func of(t team, s step) step {
	s.rec.team = t
	return s
}

func patiently(s step) step {
	s.rec.wait = 5000
	return s
}

func unfenced(s step) step {
	s.rec.flags |= flagUnfenced
	return s
}

// closing is about op 1.
func closing(proc, at int, kind recordKind) step {
	return step{proc, at, record{kind: kind, op: 1, caller: 1}}
}

// overtaking: n times p1 waits, and p0, which came later, is granted the lock so many
// times before it. By apart tokens grow.
func overtaking(n, times, apart int) (s script) {
	op := 0
	for at := 0; n > 0; n-- {
		mine := op + 1
		s = append(s, lock(1, at, mine, 0))
		for op = mine; op < mine+times; at += 10 {
			op++
			s = append(s, lock(0, at+60, op, 0), granted(0, at+61, op, int64(apart*op), at+500), unlock(0, at+62, op, at+500), unlocked(0, at+63, op, resOK))
		}
		op++
		s = append(s, granted(1, at+70, mine, int64(apart*op), at+500), unlock(1, at+71, mine, at+500), unlocked(1, at+72, mine, resOK))
		at += 100
	}
	return s
}

// keptOut: n times a re-entry is refused.
func keptOut(n int) (s script) {
	for i := range n {
		at, op := 10*i, i+1
		s = append(
			s, lock(0, at, op, 0), granted(0, at+1, op, int64(op), at+298), lock(0, at+2, op, flagInner), refused(0, at+6, op, flagInner, resNotAcquired),
			unlock(0, at+7, op, at+298), unlocked(0, at+8, op, resOK),
		)
	}
	return s
}

// unnoticed: n times p1 waits for p0, and is granted the lock so many ms late.
func unnoticed(n, late int) (s script) {
	for i := range n {
		at, op := i*1000, 2*i+1
		s = append(
			s, lock(0, at, op, 0), granted(0, at+1, op, int64(op), at+298), lock(1, at+2, op+1, 0), unlock(0, at+49, op, at+298), unlocked(0, at+50, op, resOK),
			granted(1, at+50+late, op+1, int64(op+1), at+900), unlock(1, at+51+late, op+1, at+900), unlocked(1, at+52+late, op+1, resOK),
		)
	}
	return s
}

func granted(proc, at, op int, token int64, deadline int) step {
	return step{proc, at, record{kind: recGranted, op: uint32(op), caller: uint16(op), token: token, deadline: ms(deadline)}}
}

func refused(proc, at, op int, f flags, r result) step {
	return step{proc, at, record{kind: recRefused, flags: f, op: uint32(op), caller: uint16(op), result: r}}
}

func unlock(proc, at, op, deadline int) step {
	return step{proc, at, record{kind: recUnlock, op: uint32(op), caller: uint16(op), deadline: ms(deadline)}}
}

func unlocked(proc, at, op int, r result) step {
	return step{proc, at, record{kind: recUnlocked, op: uint32(op), caller: uint16(op), result: r}}
}

func asked(proc, at, op, deadline int, f flags) step {
	return step{proc, at, record{kind: recAsk, flags: f, op: uint32(op), caller: uint16(op), deadline: ms(deadline)}}
}

func lostSeen(proc, at, op, deadline int) step {
	return step{proc, at, record{kind: recLost, op: uint32(op), caller: uint16(op), deadline: ms(deadline)}}
}

func written(proc, at, op int, token int64, f flags) step {
	return step{proc, at, record{kind: recWrite, flags: f, op: uint32(op), caller: uint16(op), token: token, deadline: ms(at)}}
}

// ms is a time in the script: the clock has run for an hour already.
func ms(n int) instant { return instant(time.Hour).add(time.Duration(n) * time.Millisecond) }

func during(from, to int) span { return span{ms(from), ms(to)} }

func fault(name string) *Fault {
	i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.Name == name })
	return &Faults()[i]
}
