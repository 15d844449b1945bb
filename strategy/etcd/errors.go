package etcd

import (
	"errors"
	"slices"
	"strings"

	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// needPerson are errors that trying again does not change, besides those whose code says so.
var needPerson = []error{
	rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrRequestTooLarge,
}

// refusals are the codes of errors that a server answers before it applies anything.
var refusals = []codes.Code{
	codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.ResourceExhausted,
}

// storeError classifies the error of a command. What is no answer of a server, such as an end of the connection, and
// its timeouts and changes of the leader leave open whether the command is applied.
func storeError(err error, notSent bool) error {
	if err == nil {
		return nil
	}
	e := &driver.StoreError{Err: err, NotApplied: notSent || isUndialled(err) || isClosed(err), Permanent: isClosed(err)}
	var answer rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &answer) {
		code := answer.Code()
		e.Permanent = e.Permanent || code == codes.PermissionDenied || slices.ContainsFunc(needPerson, func(p error) bool { return errors.Is(answer, p) })
		e.NotApplied = e.NotApplied || slices.Contains(refusals, code) || errors.Is(answer, rpctypes.ErrNoLeader)
	}
	return e
}

// applied is storeError for a command after another one that has changed the key.
func applied(err error) error {
	err = storeError(err, false)
	return &driver.StoreError{Err: err, Permanent: driver.IsPermanent(err)}
}

// isUndialled reports whether there was no connection to send the command by. gRPC says so in words only.
// (It also answers a command that was sent with the words of a connection that is being made.)
func isUndialled(err error) bool {
	return strings.Contains(err.Error(), "transport: Error while dialing")
}

// isClosed reports whether the caller has closed the client.
func isClosed(err error) bool {
	return strings.Contains(err.Error(), "the client connection is closing")
}
