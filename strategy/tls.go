package strategy

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"slices"
)

// tlsParams are the parameters of rediss URLs that this package adds to
// go-redis's, and the fields of TLS they are. skip_verify is go-redis's own,
// but not with clusters.
var tlsParams = map[string]string{
	"tls_ca_file":     "ca_file",
	"tls_cert_file":   "cert_file",
	"tls_key_file":    "key_file",
	"tls_server_name": "server_name",
	"skip_verify":     "insecure_skip_verify",
}

// config reads the files. at is what the names of the fields begin with, host
// the name that certificates are for unless t says another.
func (t *TLS) config(at, host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	switch {
	case t.InsecureSkipVerify && t.CAFile != "":
		return nil, refuse(at+"ca_file", t.CAFile, "not together with insecure_skip_verify, which asks no CA")
	case t.CertFile != "" && t.KeyFile == "":
		return nil, refuse(at+"cert_file", t.CertFile, "only together with key_file")
	case t.KeyFile != "" && t.CertFile == "":
		return nil, refuse(at+"key_file", t.KeyFile, "only together with cert_file")
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, unreadable(at+"ca_file", t.CAFile, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, refuse(at+"ca_file", t.CAFile, "a file with certificates in PEM")
		}
	}
	if t.CertFile != "" {
		cert, err := os.ReadFile(t.CertFile)
		if err != nil {
			return nil, unreadable(at+"cert_file", t.CertFile, err)
		}
		key, err := os.ReadFile(t.KeyFile)
		if err != nil {
			return nil, unreadable(at+"key_file", t.KeyFile, err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, refuse(at+"cert_file", t.CertFile, "a certificate in PEM that goes with the key in %q: %v", t.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// takeTLS takes the TLS of a URL out of l; beside is what stands beside the URL.
// It is nil for a scheme without TLS.
func (l *location) takeTLS(at string, scheme transport, beside *TLS) (*TLS, error) {
	var t TLS
	for _, param := range slices.Sorted(maps.Keys(tlsParams)) {
		switch {
		case !l.params.Has(param):
		case !scheme.tls:
			return nil, l.refuse("%s goes with a scheme that begins with rediss, not with %s", param, l.scheme)
		case beside != nil:
			return nil, refuse(at+"tls", *beside, "not together with %s in the url", param)
		}
		if err := l.set(param, &t, tlsParams[param]); err != nil {
			return nil, err
		}
	}
	switch {
	case beside != nil && !scheme.tls:
		return nil, refuse(at+"tls", *beside, "goes with a url whose scheme begins with rediss, not with %s", l.scheme)
	case beside != nil:
		return beside, nil
	case scheme.tls:
		return &t, nil
	}
	return nil, nil
}
