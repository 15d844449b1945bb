package redisdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err                   error
		permanent, notApplied bool
	}{
		{serverError("LOADING Redis is loading the dataset in memory"), false, true},
		{serverError("READONLY You can't write against a read only replica. script: f00, on @user_script:3."), false, true},
		{serverError("ERR Error running script (call to f_00): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica."), false, true},
		{serverError("CLUSTERDOWN The cluster is down"), false, true},
		{serverError("TRYAGAIN Multiple keys request during rehashing of slot"), false, true},
		{serverError("BUSY Redis is busy running a script."), false, true},
		{serverError("ERR max number of clients reached"), false, true},
		{serverError("NOAUTH Authentication required."), true, true},
		{serverError("WRONGPASS invalid username-password pair"), true, true},
		{serverError("NOPERM this user has no permissions"), true, true},
		{serverError("OOM command not allowed when used memory > 'maxmemory'. script: f00, on @user_script:9."), true, false},
		{serverError("MISCONF Errors trying to persist"), true, false},
		{serverError("ERR Error running script (call to f_00): @user_script:9: -OOM command not allowed"), true, false},
		{serverError("ERR Script attempted to access a non local key in a cluster node script: f00, on @user_script:9."), false, false},
		{serverError("ERR Script attempted to execute a write command while the cluster is down and readonly"), false, false},
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
		var s *driver.StoreError
		isStore := errors.As(got, &s)
		require.Equal(t, c.permanent, isStore && s.Permanent, "permanent: %v", c.err)
		require.Equal(t, c.notApplied, isStore && s.NotApplied, "not applied: %v", c.err)
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
	d, err := NewDriver(rdb, toy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	_, err = d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: "k", ID: "id", TTL: time.Minute}})
	require.ErrorContains(t, err, "certificate required")
	require.True(t, driver.IsPermanent(err))
	require.False(t, driver.MaybeApplied(err))
}

// A plain client that is told MOVED is the wrong client, whatever happens in the cluster.
func TestPlainClientOfACluster(t *testing.T) {
	for _, answer := range []serverError{"MOVED 3999 127.0.0.1:6381", "CROSSSLOT Keys in request don't hash to the same slot"} {
		err := (&lane{}).classify(answer)
		require.True(t, driver.IsPermanent(err))
		require.False(t, driver.MaybeApplied(err))
		require.ErrorContains(t, err, "redis.ClusterClient")
	}
	cluster := &lane{cluster: redis.NewClusterClient(&redis.ClusterOptions{})}
	require.False(t, driver.IsPermanent(cluster.classify(serverError("MOVED 3999 127.0.0.1:6381"))))
}
