package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type serverText string

func (e serverText) Error() string { return string(e) }
func (serverText) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err                   error
		permanent, notApplied bool
	}{
		{serverText("LOADING Redis is loading the dataset in memory"), false, true},
		{serverText("READONLY You can't write against a read only replica. script: f00, on @user_script:3."), false, true},
		{serverText("ERR Error running script (call to f_00): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica."), false, true},
		{serverText("CLUSTERDOWN The cluster is down"), false, true},
		{serverText("TRYAGAIN Multiple keys request during rehashing of slot"), false, true},
		{serverText("NOSCRIPT No matching script. Please use EVAL."), false, true},
		{serverText("BUSY Redis is busy running a script."), false, true},
		{serverText("ERR max number of clients reached"), false, true},
		{serverText("NOAUTH Authentication required."), true, true},
		{serverText("WRONGPASS invalid username-password pair"), true, true},
		{serverText("NOPERM this user has no permissions"), true, true},
		{serverText("OOM command not allowed when used memory > 'maxmemory'. script: f00, on @user_script:9."), true, false},
		{serverText("MISCONF Errors trying to persist"), true, false},
		{serverText("ERR Error running script (call to f_00): @user_script:9: -OOM command not allowed"), true, false},
		{serverText("ERR Script attempted to access a non local key in a cluster node script: f00, on @user_script:9."), false, false},
		{serverText("ERR Script attempted to execute a write command while the cluster is down and readonly"), false, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false, true},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), false, true},
		{redis.ErrPoolTimeout, false, true},
		{redis.ErrClosed, true, true},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, true, true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, true, true},
		{errors.New("tls: certificate required"), true, true}, // an alert, out of its OpError
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, false, false},
		{io.EOF, false, false},
	} {
		got := classify(c.err)
		require.ErrorIs(t, got, c.err)
		var e *Error
		known := errors.As(got, &e)
		require.Equal(t, c.permanent, known && e.Permanent, "permanent: %v", c.err)
		require.Equal(t, c.notApplied, known && e.NotApplied, "not applied: %v", c.err)
	}
	require.NoError(t, classify(nil))
}

// A server that asks for a certificate is not asked again and again: it was heard at the
// handshake that it does not trust us.
func TestCertificateThatIsMissing(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Listener.Addr().String(), TLSConfig: &tls.Config{InsecureSkipVerify: true}})
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	err := d.Acquire(t.Context(), claim{"k", "id"})
	require.ErrorContains(t, err, "certificate required")
	require.True(t, isPermanent(err))
	require.False(t, maybeApplied(err))
}

// A plain client that is told MOVED is the wrong client, whatever happens in the cluster.
func TestPlainClientOfACluster(t *testing.T) {
	for _, answer := range []serverText{"MOVED 3999 127.0.0.1:6381", "CROSSSLOT Keys in request don't hash to the same slot"} {
		err := (&pipeline{}).classify(answer)
		require.True(t, isPermanent(err))
		require.False(t, maybeApplied(err))
		require.ErrorContains(t, err, "redis.ClusterClient")
	}
	cluster := &pipeline{cluster: redis.NewClusterClient(&redis.ClusterOptions{})}
	require.False(t, isPermanent(cluster.classify(serverText("MOVED 3999 127.0.0.1:6381"))))
}
