// Package register adds strategy etcd to package strategy. Import it for its effect:
//
//	import _ "github.com/distlock/locker/strategy/etcd/register"
//
//	l, release, err := strategy.OpenURL(ctx, "etcd://h1:2379,h2:2379,h3:2379?ttl=10s&prefix=app:")
//
// etcd:// connects without TLS, etcds:// with it. The port is 2379 unless the URL says another one. Besides the
// parameters of package strategy there are
//
//	addr=[::1]:2379               a further server, which is not among the hosts; more than once if need be
//	tls_ca_file=ca.pem            the authorities that sign the servers' certificates; default: the system's
//	tls_cert_file, tls_key_file   the client's certificate, by which etcd can know its user
//	tls_server_name=etcd.local    the name in the servers' certificates, if it is not the host's
//	skip_verify=true              any certificate will do
//	dial_timeout=5s               for a connection to a server; default 5s
//	dial_keep_alive_time=10s      a connection that is silent for so long is asked whether it lives; default 10s, the least that gRPC does
//	dial_keep_alive_timeout=3s    how long that question may take; default 3s
//
// A user and a password are written before the hosts, as in etcds://app:secret@h1. With them the
// client asks a server for a token before OpenURL returns, which fails if none answers within dial_timeout. Without
// them a program may start before its etcd.
//
// A strategy: etcd without a URL connects to localhost.
//
// It is a package of its own as package strategy links the client for Redis, too.
package register

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func init() {
	for _, name := range []string{"etcd", "etcds"} {
		if err := strategy.Register(name, strategy.Opener{Other: open}); err != nil {
			panic(err) // two of this name
		}
	}
}

const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	dialTimeout      = 5 * time.Second
	defaultPort      = "2379"
)

func refuse(format string, args ...any) error {
	return fmt.Errorf("locker: %w: config %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}

func open(ctx context.Context, u *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
	cfg, err := configOf(u)
	if err != nil {
		return nil, nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		cfg.DialTimeout = max(min(cfg.DialTimeout, time.Until(end)), time.Millisecond)
	}
	// With a user the client asks a server at once: what is wrong with the options is said before.
	user := cfg.Username
	cfg.Username = ""
	client, l, err := connect(cfg, opts)
	if err == nil && user != "" {
		_, _ = l.Close(), client.Close()
		cfg.Username = user
		client, l, err = connect(cfg, opts)
	}
	if err != nil {
		return nil, nil, err
	}
	return l, func() { _ = client.Close() }, nil
}

func connect(cfg clientv3.Config, opts []locker.Option) (*clientv3.Client, *locker.Client, error) {
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("locker: %w: etcd at %s: %s", locker.ErrUnavailable, strings.Join(cfg.Endpoints, ", "), err.Error())
	}
	l, err := etcd.New(client, opts...)
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return client, l, nil
}

// configOf does not repeat a value that may be of a password.
func configOf(u *url.URL) (clientv3.Config, error) {
	cfg := clientv3.Config{Logger: zap.NewNop(), DialTimeout: dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout}
	_, scheme, combined := strings.Cut(u.Scheme, "+")
	if !combined {
		scheme = u.Scheme
	}
	switch {
	case scheme != "etcd" && scheme != "etcds":
		return cfg, refuse("url: the strategy etcd takes etcd:// or etcds://, not %s://", u.Scheme)
	case strings.Trim(u.Path, "/") != "":
		return cfg, refuse("url: want etcd://host:port,host:port?parameters, got the path %q; what keys begin with is the parameter prefix", u.Path)
	}
	var err error
	params := u.Query()
	hosts := append(strings.Split(u.Host, ","), params["addr"]...)
	params.Del("addr")
	if cfg.Endpoints, err = endpoints(hosts, map[string]string{"etcd": "http://", "etcds": "https://"}[scheme]); err != nil {
		return cfg, err
	}
	cfg.Username = u.User.Username()
	cfg.Password, _ = u.User.Password()
	if (cfg.Username == "") != (cfg.Password == "") {
		return cfg, refuse("url: want a user and a password, as in etcd://user:password@host, got one of them")
	}
	for name, field := range map[string]*time.Duration{
		"dial_timeout": &cfg.DialTimeout, "dial_keep_alive_time": &cfg.DialKeepAliveTime, "dial_keep_alive_timeout": &cfg.DialKeepAliveTimeout,
	} {
		if value := params.Get(name); value != "" {
			if *field, err = time.ParseDuration(value); err != nil || *field <= 0 {
				return cfg, refuse("%s %q: want a time above 0, as in 5s", name, value)
			}
		}
		params.Del(name)
	}
	if cfg.TLS, err = tlsOf(scheme, params); err != nil {
		return cfg, err
	}
	for name := range params {
		return cfg, refuse("url: unknown parameter %s; there are addr, dial_keep_alive_time, dial_keep_alive_timeout, dial_timeout, %s, and those about locks", name, strings.Join(tlsParams, ", "))
	}
	return cfg, nil
}

func endpoints(hosts []string, scheme string) (all []string, err error) {
	for _, host := range hosts {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), ""
		}
		if name == "" && len(hosts) > 1 {
			return nil, refuse("url: want hosts with a comma between them, as in etcd://h1:2379,h2:2379, got %q", hosts)
		}
		n, wrong := strconv.Atoi(cmp.Or(port, defaultPort))
		_, noIP := netip.ParseAddr(name)
		if wrong != nil || n < 1 || n > 65535 || strings.ContainsAny(name, "/?#@,;[]\\ \t\r\n") || strings.Contains(name, ":") && noIP != nil {
			return nil, refuse("url: want host or host:port with a port of 1 to 65535, and a password before all hosts, got %q", host[strings.LastIndexByte(host, '@')+1:])
		}
		all = append(all, scheme+net.JoinHostPort(cmp.Or(name, "localhost"), cmp.Or(port, defaultPort)))
	}
	return all, nil
}

var tlsParams = []string{"skip_verify", "tls_ca_file", "tls_cert_file", "tls_key_file", "tls_server_name"}

// tlsOf takes the parameters of TLS from params.
func tlsOf(scheme string, params url.Values) (*tls.Config, error) {
	given := make(map[string]string)
	for name := range params {
		if slices.Contains(tlsParams, name) {
			given[name] = params.Get(name)
			params.Del(name)
		}
	}
	if scheme == "etcd" {
		for name := range given {
			return nil, refuse("%s goes with etcds://, not with etcd://", name)
		}
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: given["tls_server_name"]}
	switch skip := given["skip_verify"]; skip {
	case "", "false":
	case "true":
		cfg.InsecureSkipVerify = true
	default:
		return nil, refuse("skip_verify %q: want true or false", skip)
	}
	if name := given["tls_ca_file"]; name != "" {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, refuse("tls_ca_file: %v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, refuse("tls_ca_file %q: want certificates in PEM", name)
		}
	}
	cert, key := given["tls_cert_file"], given["tls_key_file"]
	if (cert == "") != (key == "") {
		return nil, refuse("tls_cert_file and tls_key_file: want both of them, got one")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, refuse("tls_cert_file and tls_key_file: %v", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
