package register_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/etcd/register"
)

// A server that does not answer is no reason to fail.
func TestOpen(t *testing.T) {
	for _, url := range []string{
		"etcd://localhost:1,localhost:2?ttl=10s&prefix=app:&wait=5s",
		"etcd://localhost:1?addr=[::1]:2&addr=[::1]&dial_timeout=1s&dial_keep_alive_time=20s&dial_keep_alive_timeout=5s",
		"etcds://localhost:1?skip_verify=true&tls_server_name=etcd.local",
		"etcd+etcds://localhost",
		"etcd://[::1]:1",
		"etcd://",
	} {
		_, release, err := strategy.OpenURL(t.Context(), url)
		require.NoError(t, err, url)
		release()
	}
	for _, url := range []string{"", "etcd://localhost:1", "etcds://localhost:1?skip_verify=true"} {
		_, release, err := strategy.Open(t.Context(), strategy.Config{Strategy: "etcd", URL: url})
		require.NoError(t, err, url)
		release()
	}
	_, _, err := strategy.Open(t.Context(), strategy.Config{Strategy: "etcd", URL: "memory://x"})
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "etcd:// or etcds://, not memory://")
	require.Subset(t, strategy.Names(), []string{"etcd", "etcds"})
}

func TestOpenRefuses(t *testing.T) {
	for url, word := range map[string]string{
		"etcd://h/app":                               `the path "/app"`,
		"etcd://h1,,h2":                              "comma",
		"etcd://h1:x,h2:2379":                        `"h1:x"`,
		"etcd://h1:0":                                `"h1:0"`,
		"etcd://h1:23790,h2:2379:1":                  `"h2:2379:1"`,
		"etcd://h1?addr=http://h2:2379":              `"http://h2:2379"`,
		"etcd://h1?addr=app:secret%40h2:2379":        "before all hosts",
		"etcd://app@h":                               "a user and a password",
		"etcd://:secret@h":                           "a user and a password",
		"etcd://app:secret@h?ttl=1ms":                "ttl",
		"etcd://app:secret@h?dial_timeout=soon":      `dial_timeout "soon"`,
		"etcd://app:secret@h?dial_timeout=-1s":       `dial_timeout "-1s"`,
		"etcd://app:secret@h?replica_acks=1":         "replica_acks",
		"etcd://app:secret@h?pool_size=1":            "unknown parameter pool_size",
		"etcd://h?tls_ca_file=/nowhere":              "tls_ca_file goes with etcds://",
		"etcds://h?tls_ca_file=/nowhere":             "/nowhere",
		"etcds://h?tls_cert_file=/nowhere":           "want both",
		"etcds://h?tls_cert_file=/a&tls_key_file=/b": "/a",
		"etcds://h?skip_verify=perhaps":              `skip_verify "perhaps"`,
		"etcd+redis://app:secret@h":                  "etcd:// or etcds://",
	} {
		_, _, err := strategy.OpenURL(t.Context(), url)
		require.ErrorIs(t, err, locker.ErrInvalid, url)
		require.ErrorContains(t, err, word)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A user's token is asked for at once.
func TestOpenWithAUserAsks(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer nobody.Close() // it accepts connections, and answers nothing
	_, _, err = strategy.OpenURL(t.Context(), "etcd://app:secret@"+nobody.Addr().String()+"?dial_timeout=100ms")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded) // it is not the caller's
	require.ErrorContains(t, err, "etcd at http://"+nobody.Addr().String())
	require.NotContains(t, err.Error(), "secret")
}

// etcds:// sends commands by TLS, to a server whose certificate is signed by tls_ca_file.
func TestTLS(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	url := "etcds://" + server.Listener.Addr().String() + "?tls_server_name=example.com"

	l, release, err := strategy.OpenURL(t.Context(), url+"&tls_ca_file="+ca)
	require.NoError(t, err)
	defer release()
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable) // this is no etcd
	select {
	case path := <-asked:
		require.Contains(t, path, "etcdserverpb")
	case <-time.After(10 * time.Second):
		t.Fatal("no command has come by TLS")
	}

	stranger, releaseToo, err := strategy.OpenURL(t.Context(), url)
	require.NoError(t, err)
	defer releaseToo()
	_, err = stranger.TryLock(t.Context(), "k")
	require.ErrorContains(t, err, "certificate")
}
