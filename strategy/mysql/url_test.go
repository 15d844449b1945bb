package mysql_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	_ "github.com/distlock/locker/strategy/mysql/register"
)

// certificate writes one for 127.0.0.1, which signs itself. The server reads it as another user.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o644))
	return cert, key
}

// A Locker by URL, with a password that needs escapes, by TLS and by the socket.
func TestURL(t *testing.T) {
	t.Parallel()
	s, err := newServer()
	require.NoError(t, err)
	t.Cleanup(s.stop)
	cert, key := certificate(t, s.Dir)
	s.Settings = append(s.Settings, "--ssl-cert="+cert, "--ssl-key="+key)
	require.NoError(t, s.start())
	ctx := t.Context()
	const password = `p@ss/w:o?r&d%#`
	require.NoError(t, s.admin(ctx, `CREATE USER safe IDENTIFIED BY '`+password+`' REQUIRE SSL; CREATE USER plain IDENTIFIED BY '`+password+`';
		GRANT ALL ON app.* TO safe; GRANT ALL ON app.* TO plain`))
	open := func(user, params string) error {
		u := url.URL{Scheme: "mysql", User: url.UserPassword(user, password), Host: s.addr(), Path: "/app"}
		l, release, err := strategy.OpenURL(ctx, u.String()+"?ttl=10s&wait=20s&"+params)
		require.NoError(t, err)
		defer release()
		lease, err := l.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.NotContains(t, err.Error(), password)
		}
		return err
	}
	require.NoError(t, open("plain", "table=app.locks"))
	require.NoError(t, open("safe", "tls_ca_file="+cert))
	require.NoError(t, open("safe", "tls=skip-verify"))
	require.Error(t, open("safe", ""), "it wants TLS")
	require.ErrorContains(t, open("safe", "tls=true"), "certificate")
	require.ErrorContains(t, open("safe", "tls_server_name=other&tls_ca_file="+cert), "certificate")
	require.NoError(t, open("plain", "table=app.locks&max_conns=2"))

	l, release, err := strategy.OpenURL(ctx, "mysql://plain:"+url.QueryEscape(password)+"@/app?socket="+s.Socket())
	require.NoError(t, err)
	defer release()
	cycle(t, l, "k")
}
