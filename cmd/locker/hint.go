package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// answers are hints by what a server's answer contains. Where the server has answered, the
// network is well.
var answers = []struct{ part, hint string }{
	{"WRONGPASS", wrongUser},
	{"NOAUTH", wrongUser},
	{"invalid password", wrongUser},
	{"AUTH <password>", "the server has no password, but the URL does"},
	{"NOPERM", `the user's ACL lacks a right: see "Permissions" in docs/strategies.md`},
	{"DB index is out of range", "the server does not have the database whose number the URL names"},
	{"all sentinels specified in configuration are unreachable: redis: nil", "the Sentinels answer, but know no master of the name that master_name gives"},
	{"cluster support disabled", "the server is of no cluster: its scheme is redis or rediss, without -cluster"},
	{"MOVED", "the server is of a cluster: its scheme is redis-cluster or rediss-cluster"},
	{"unknown command", "is it a Redis server, and no Sentinel? Sentinels take redis-sentinel instead of redis"},
}

const wrongUser = "the server refuses the URL's user name and password, or wants some: setnx+redis://user:password@host:6379"

// hint returns advice for a store that cannot be used; "" if its own words suffice.
func (f *storeFlags) hint(err error) string {
	var answer redis.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &answer):
		for _, a := range answers {
			if strings.Contains(err.Error(), a.part) {
				return a.hint
			}
		}
		return ""
	case errors.As(err, &certificate):
		return "the parameter tls_ca_file of the URL names the file with the authority's certificate"
	case f.tls:
		return "is the server up, and does it speak TLS on this port? one that does not takes redis instead of rediss"
	}
	return "is the server up, and its address right? a port that speaks TLS takes rediss instead of redis"
}

// hinted is err with what may help.
func (f *storeFlags) hinted(err error) error {
	if hint := f.hint(err); hint != "" && errors.Is(err, locker.ErrUnavailable) {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// explained is err with what may help, as a part of a line.
func (f *storeFlags) explained(err error) string { return plain(f.hinted(err)) }

// plain is err without the name of this program, which lines begin with.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "locker: ") }
