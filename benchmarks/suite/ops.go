//go:build unix

package main

import (
	"crypto/sha1"
	"fmt"
	"regexp"
	"sync"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
)

// ops recognises the commands of libraries: a script by what its text contains. A server that does not know a script
// is sent its text, so that the script is known by its hash from then on.
type ops struct{ known sync.Map }

var (
	isSet     = faultproxy.MatchCommand("SET")
	isEval    = faultproxy.MatchCommand("EVAL")
	isEvalSHA = faultproxy.MatchCommand("EVALSHA")
	taking    = regexp.MustCompile(`(?i)msetnx|"NX"`)
	renewing  = regexp.MustCompile(`(?i)pexpire`)
	releasing = regexp.MustCompile(`(?i)"del"`)
)

func (o *ops) of(cmd []string) conformance.Op {
	switch {
	case isSet(cmd):
		return conformance.OpAcquire
	case isEvalSHA(cmd) && len(cmd) > 1:
		op, _ := o.known.Load(cmd[1])
		known, _ := op.(conformance.Op)
		return known
	case isEval(cmd) && len(cmd) > 1:
		op := opOf(cmd[1])
		o.known.Store(hash(cmd[1]), op)
		return op
	}
	return ""
}

func hash(script string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(script))) }

func opOf(script string) conformance.Op {
	switch {
	case taking.MatchString(script):
		return conformance.OpAcquire
	case renewing.MatchString(script):
		return conformance.OpRenew
	case releasing.MatchString(script):
		return conformance.OpRelease
	}
	return ""
}
