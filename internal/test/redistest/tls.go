package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// WithTLS makes the server listen on a TLS port, too, with a certificate of an
// authority of its own. It asks clients for one of that authority: see
// [Server.TLSConfig].
func WithTLS() Option {
	return func(c *config) { c.tls = true }
}

// TLSAddr returns the host:port where a server started WithTLS speaks TLS.
func (s *Server) TLSAddr(tb testing.TB) string {
	tb.Helper()
	if s.tls == nil {
		tb.Fatal("redistest: the server was started without WithTLS")
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.tls.port))
}

// TLSConfig returns what a client needs for TLSAddr: the authority, and a
// certificate of its own. The caller may change it.
func (s *Server) TLSConfig(tb testing.TB) *tls.Config {
	tb.Helper()
	if s.tls == nil {
		tb.Fatal("redistest: the server was started without WithTLS")
	}
	return s.tls.client.Clone()
}

// TLSFiles returns the paths of what [Server.TLSConfig] is made of, in PEM: the
// authority, the client's certificate and its key.
func (s *Server) TLSFiles(tb testing.TB) (ca, cert, key string) {
	tb.Helper()
	if s.tls == nil {
		tb.Fatal("redistest: the server was started without WithTLS")
	}
	return s.tls.ca, s.tls.clientCert, s.tls.clientKey
}

// tlsFiles are the certificates of one server and its clients.
type tlsFiles struct {
	port                  int
	ca, cert, key         string // paths
	clientCert, clientKey string
	client                *tls.Config
}

func (f *tlsFiles) args() []string {
	return []string{
		"--tls-port", strconv.Itoa(f.port),
		"--tls-ca-cert-file", f.ca,
		"--tls-cert-file", f.cert,
		"--tls-key-file", f.key,
		"--tls-auth-clients", "yes",
	}
}

func newTLSFiles(dir string) (*tlsFiles, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	f := &tlsFiles{
		ca:   filepath.Join(dir, "ca.crt"),
		cert: filepath.Join(dir, "server.crt"),
		key:  filepath.Join(dir, "server.key"),

		clientCert: filepath.Join(dir, "client.crt"),
		clientKey:  filepath.Join(dir, "client.key"),
	}
	certPEM, keyPEM, err := ca.issue("server")
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(f.ca, ca.pem, 0o600),
		os.WriteFile(f.cert, certPEM, 0o600),
		os.WriteFile(f.key, keyPEM, 0o600),
	)
	if err != nil {
		return nil, err
	}
	if certPEM, keyPEM, err = ca.issue("client"); err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(f.clientCert, certPEM, 0o600),
		os.WriteFile(f.clientKey, keyPEM, 0o600),
	)
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	f.client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	return f, nil
}

// authority signs certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := template("authority", 1)
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return &authority{key, cert, encode("CERTIFICATE", der)}, nil
}

// issue makes a certificate for this machine that serves either side.
func (a *authority) issue(name string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	cert := template(name, time.Now().UnixNano())
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of the %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER), err
}

func template(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "redistest " + name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
