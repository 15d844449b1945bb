package strategy

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is one Redis deployment: one of the three.
type server struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	sentinel *redis.FailoverOptions

	place string // what the field with its address is called
}

// server returns the deployment that c describes. at is the prefix of the names of c's fields,
// place the name of the field with the address.
func (c Config) server(at, place string) (s server, err error) {
	s.place = place
	if c.MasterName == "" {
		err = exclude(c, at, "goes with master_name, for Sentinels", "sentinel_username", "sentinel_password", "sentinel_password_file")
	}
	if c.UnixSocket != "" && err == nil {
		err = exclude(c, at, "not together with unix_socket", "addrs", "cluster", "master_name", "tls")
	}
	switch {
	case err != nil:
		return s, err
	case c.DB < 0:
		return s, refuse(at+"db", c.DB, "0 or more")
	case len(c.Addrs) == 0 && c.UnixSocket == "":
		return s, &fieldError{field: place, allowed: "one of url, addrs, unix_socket and Client says where Redis is"}
	case c.Cluster && c.MasterName != "":
		return s, refuse(at+"master_name", c.MasterName, "not together with cluster: true")
	case c.Cluster && c.DB != 0:
		return s, refuse(at+"db", c.DB, "not together with cluster: true: a cluster has database 0 only")
	case len(c.Addrs) > 1 && !c.Cluster && c.MasterName == "":
		return s, refuse(place, c.Addrs, "several only together with cluster: true or, for Sentinels, master_name")
	}
	return c.options(at, s)
}

// options makes those of go-redis.
func (c Config) options(at string, s server) (_ server, err error) {
	if c.Password, err = readPassword(at, c.Username, c.Password, c.PasswordFile); err != nil {
		return s, err
	}
	if c.SentinelPassword, err = readPassword(at+"sentinel_", c.SentinelUsername, c.SentinelPassword, c.SentinelPasswordFile); err != nil {
		return s, err
	}
	port := "6379"
	if c.MasterName != "" {
		port = "26379"
	}
	addrs := make([]string, len(c.Addrs))
	for i, addr := range c.Addrs {
		if addrs[i], err = hostPort(s.place, addr, port); err != nil {
			return s, err
		}
	}
	var conf *tls.Config
	if c.TLS != nil {
		host, _, _ := net.SplitHostPort(addrs[0])
		if conf, err = c.TLS.config(at+"tls.", host); err != nil {
			return s, err
		}
	}
	tuned := "redis://h?" + c.tuning.Encode()
	switch {
	case c.Cluster:
		if s.cluster, err = redis.ParseClusterURL(tuned); err == nil {
			o := s.cluster
			o.Addrs, o.Username, o.Password, o.TLSConfig = addrs, c.Username, c.Password, conf
		}
	case c.MasterName != "":
		if s.sentinel, err = redis.ParseFailoverURL(tuned); err == nil {
			o := s.sentinel
			o.MasterName, o.SentinelAddrs, o.DB, o.TLSConfig = c.MasterName, addrs, c.DB, conf
			o.Username, o.Password = c.Username, c.Password
			o.SentinelUsername, o.SentinelPassword = c.SentinelUsername, c.SentinelPassword
			setTimeouts(o)
		}
	default:
		if s.single, err = redis.ParseURL(tuned); err == nil {
			o := s.single
			o.Network, o.Addr = "unix", c.UnixSocket
			if len(addrs) > 0 {
				o.Network, o.Addr = "tcp", addrs[0]
			}
			o.DB, o.Username, o.Password, o.TLSConfig = c.DB, c.Username, c.Password, conf
		}
	}
	if err != nil {
		return s, refuse(at+"url", c.URL, "%s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	if name := s.withoutTime(); name != "" {
		return s, refuse(at+"url", c.URL, "want a %s above 0", name)
	}
	return s, nil
}

// withoutTime returns the name of a time-out that is 0 or less in the URL, or "". go-redis parses it as -1. Then no
// connection succeeds, and a question to a silent Sentinel does not end.
func (s server) withoutTime() string {
	switch {
	case s.cluster != nil && s.cluster.DialTimeout < 0, s.single != nil && s.single.DialTimeout < 0, s.sentinel != nil && s.sentinel.DialTimeout < 0:
		return "dial_timeout"
	case s.sentinel != nil && s.sentinel.ReadTimeout < 0:
		return "read_timeout"
	case s.sentinel != nil && s.sentinel.WriteTimeout < 0:
		return "write_timeout"
	}
	return ""
}

// setTimeouts gives the questions to the Sentinels short time-outs, where the user chose none. go-redis asks one
// Sentinel until three questions to it have timed out. With go-redis's own defaults this may take minutes if the
// Sentinel's machine is gone.
func setTimeouts(o *redis.FailoverOptions) {
	o.ReadTimeout = cmp.Or(o.ReadTimeout, time.Second)
	o.WriteTimeout, o.DialTimeout = cmp.Or(o.WriteTimeout, o.ReadTimeout), cmp.Or(o.DialTimeout, 2*time.Second)
	o.DialerRetries, o.MaxRetries = cmp.Or(o.DialerRetries, 1), cmp.Or(o.MaxRetries, -1)
}

// checkPlace refuses fields about the place of a store that do not go together,
// or not with the strategy.
func (c *Config) checkPlace(r *Registry, o Opener) error {
	place := []string{"addrs", "unix_socket", "cluster", "master_name", "db", "sentinel_username", "sentinel_password", "sentinel_password_file"}
	shared := []string{"username", "password", "password_file", "tls"}
	all := slices.Concat([]string{"url", "nodes"}, place, shared)
	switch many := o.Nodes != nil; {
	case c.Client != nil && o.Redis == nil, len(c.Clients) > 0 && !many:
		return refuse("Client or Clients", "(given)", "Client is for strategies on one Redis deployment and Clients for those on several servers, not for %s", c.Strategy)
	case o.Other != nil:
		return exclude(*c, "", "for strategies on Redis, not for "+c.Strategy, all[1:]...)
	case c.Client != nil || len(c.Clients) > 0:
		for i, rdb := range c.Clients {
			if reflect.ValueOf(rdb).Comparable() && slices.Contains(c.Clients[:i], rdb) {
				return refuse(fmt.Sprintf("Clients[%d]", i), "(given)", "a client of another server than those before it")
			}
		}
		return exclude(*c, "", "not together with Client or Clients", all...)
	case many && c.URL != "":
		return exclude(*c, "", "not for strategy "+c.Strategy+", which is on several independent servers: the url names them", all[1:len(all)-len(shared)]...)
	case many:
		return exclude(*c, "", "not for strategy "+c.Strategy+", which is on several independent servers: given for each of the nodes", all[2:]...)
	}
	return exclude(*c, "", "for a strategy on several servers, not for "+c.Strategy+"; such are "+
		r.names(func(o Opener) bool { return o.Nodes != nil }), "nodes")
}

// readPassword returns the password given, or the one in the file. at is the
// prefix of the fields' names.
func readPassword(at, username, given, file string) (string, error) {
	if file != "" {
		if given != "" {
			return "", refuse(at+"password_file", file, "not together with a password")
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return "", unreadable(at+"password_file", file, err)
		}
		given = strings.TrimRight(string(b), "\r\n")
		if given == "" {
			return "", refuse(at+"password_file", file, "a file with a password; it is empty")
		}
	}
	if username != "" && given == "" { // not shown: a password that lacks its colon looks like a user name
		return "", &fieldError{field: at + "username", allowed: "a user name only together with a password; one without is not sent (in a url a password alone is :password@)"}
	}
	return given, nil
}

// connect makes the client. It opens no connection: a Locker takes locks on its own.
func (s server) connect() redis.UniversalClient {
	switch {
	case s.cluster != nil:
		return redis.NewClusterClient(s.cluster)
	case s.sentinel != nil:
		return redis.NewFailoverClient(s.sentinel)
	}
	return redis.NewClient(s.single)
}

// hostPort checks an address and adds the default port.
func hostPort(field, addr, port string) (string, error) {
	host := addr
	if h, p, err := net.SplitHostPort(addr); err == nil {
		host, port = h, p
	} else if h, ok := strings.CutSuffix(addr, "]"); ok && strings.HasPrefix(h, "[") {
		host = h[1:]
	}
	n, err := strconv.Atoi(port)
	bare := host == addr && strings.Contains(addr, ":") // an IPv6 address without brackets, or no port
	if err != nil || n < 1 || n > 65535 || host == "" || bare || strings.ContainsAny(host, "/?#@,;[]\\ \t\r\n") {
		return "", refuse(field, addr, "host or host:port, with a port of 1 to 65535; user, password and the like stand elsewhere")
	}
	return net.JoinHostPort(host, port), nil
}

// config reads the files. at is the prefix of the fields' names, host
// the name in the certificates unless t has another.
func (t *TLS) config(at, host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	switch {
	case t.InsecureSkipVerify && t.CAFile != "":
		return nil, refuse(at+"ca_file", t.CAFile, "not together with insecure_skip_verify, which asks no CA")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return nil, refuse(at+"cert_file", t.CertFile, "both or neither of cert_file and key_file")
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
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, refuse(at+"cert_file", t.CertFile, "a certificate in PEM that goes with the key in %q: %v", t.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
