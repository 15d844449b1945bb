package strategy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// authority makes certificates, as files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes name.crt and name.key; the first is the authority's own.
func (a *authority) issue(name string, hosts ...string) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage, cert.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		a.cert, a.key = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", keyDER)
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func TestTLS(t *testing.T) {
	a := &authority{t: t, dir: t.TempDir()}
	ca, _ := a.issue("ca")
	cert, key := a.issue("server", "redis.test")
	ours, ourKey := a.issue("client")
	stranger := &authority{t: t, dir: t.TempDir()}
	otherCA, otherKey := stranger.issue("ca")

	port := freePort(t)
	redistest.Start(t, redistest.WithConfig("--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", ca, "--tls-auth-clients", "yes"))
	addrs := []string{"127.0.0.1:" + port}

	locks(t, Config{Addrs: addrs, TLS: &TLS{CAFile: ca, CertFile: ours, KeyFile: ourKey, ServerName: "redis.test"}})
	locks(t, Config{Addrs: addrs, TLS: &TLS{CertFile: ours, KeyFile: ourKey, InsecureSkipVerify: true}})
	locks(t, Config{URL: "rediss://" + addrs[0] + "?tls_server_name=redis.test&tls_ca_file=" + ca + "&tls_cert_file=" + ours + "&tls_key_file=" + ourKey})

	if testing.Short() {
		return
	}
	for why, wrong := range map[string]TLS{
		"certificate signed by unknown authority":     {CAFile: otherCA, CertFile: ours, KeyFile: ourKey, ServerName: "redis.test"},
		"cannot validate certificate for 127.0.0.1":   {CAFile: ca, CertFile: ours, KeyFile: ourKey},
		"tls: certificate required":                   {CAFile: ca, ServerName: "redis.test"},
		"remote error: tls: unknown certificate auth": {CAFile: ca, CertFile: otherCA, KeyFile: otherKey, ServerName: "redis.test"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel() // closing takes seconds, as some attempt might have arrived
			refused(t, Config{Addrs: addrs, TLS: &wrong}, why)
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
