package strategy

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// serverOfURL is the deployment at l, with what of c stands beside the URL:
// user names, passwords and TLS. at is what the names of c's fields begin with.
func (c *Config) serverOfURL(at string, l *location) (server, error) {
	scheme, ok := transports[l.scheme]
	switch {
	case l.scheme == "":
		return server{}, l.refuse("strategy %s has + and a scheme behind it: %s", c.Strategy, list(transports))
	case !ok:
		return server{}, l.refuse("unknown scheme %q; with strategy %s there are %s", l.scheme, c.Strategy, list(transports))
	}
	u := *l.url
	u.Scheme = scheme.base
	switch {
	case scheme.base == "unix" && (u.Host != "" || len(u.Path) < 2 || u.Path[0] != '/'):
		return server{}, l.refuse("the path of a socket from the root, as in unix:///run/redis.sock")
	case scheme.base != "unix":
		if err := l.checkHost(&u, scheme.port); err != nil {
			return server{}, err
		}
	}
	if err := l.checkDB(); err != nil {
		return server{}, err
	}
	tls, err := l.takeTLS(at, scheme, c.TLS)
	if err != nil {
		return server{}, err
	}
	for i, addr := range l.params["addr"] {
		if l.params["addr"][i], err = hostPort("addr", addr, scheme.port); err != nil {
			return server{}, err
		}
	}

	u.RawQuery = l.params.Encode()
	s, err := scheme.parse(u.String())
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "redis: ")
		if names, ok := strings.CutPrefix(why, "unexpected option: "); ok {
			return server{}, l.unknown(strings.Split(names, ", "), scheme.names())
		}
		if errors.As(err, new(*url.Error)) { // it would repeat the URL
			why = "a URL of the form " + urlForm + "; " + urlEscapes
		}
		return server{}, l.refuse("%s", why)
	}
	if err := c.addCredentials(at, l, s); err != nil {
		return server{}, err
	}
	if why := s.check(); why != "" {
		return server{}, l.refuse("%s", why)
	}
	s.from = l
	s.setTLS(nil)
	if tls != nil {
		conf, err := tls.config(at+"tls.", u.Hostname())
		if err != nil {
			return server{}, err
		}
		s.setTLS(conf)
	}
	return s, nil
}

// addCredentials puts what stands beside the URL into s, unless the URL has it
// too.
func (c *Config) addCredentials(at string, l *location, s server) error {
	if s.sentinel == nil {
		why := "goes with a url whose scheme ends with -sentinel, not with " + l.scheme
		if err := exclude(c, at, why, "sentinel_username", "sentinel_password"); err != nil {
			return err
		}
	}
	for _, who := range s.credentials() {
		for _, b := range []struct {
			field string
			into  *string
		}{{who.prefix + "username", who.user}, {who.prefix + "password", who.password}} {
			beside := find(c, b.field).String()
			switch {
			case beside == "":
			case *b.into != "":
				return refuse(at+b.field, beside, "not together with the one in the url")
			default:
				*b.into = beside
			}
		}
		if *who.user != "" && *who.password == "" {
			return l.refuse("a user name only together with a password; one without is not sent (a password alone is :password@)")
		}
	}
	return nil
}

// serverOfFields is the deployment that c describes without a URL.
func (c *Config) serverOfFields(at string) (server, error) {
	if c.DB < 0 {
		return server{}, refuse(at+"db", c.DB, "0 or more")
	}
	if c.MasterName == "" {
		if err := exclude(c, at, "goes with master_name, for Sentinels", "sentinel_username", "sentinel_password"); err != nil {
			return server{}, err
		}
	}
	switch {
	case c.Username != "" && c.Password == "":
		return server{}, refuse(at+"username", c.Username, "only together with password")
	case c.SentinelUsername != "" && c.SentinelPassword == "":
		return server{}, refuse(at+"sentinel_username", c.SentinelUsername, "only together with sentinel_password")
	}
	if c.UnixSocket != "" {
		if err := exclude(c, at, "not together with unix_socket", "addrs", "cluster", "master_name", "tls"); err != nil {
			return server{}, err
		}
		return server{single: &redis.Options{
			Network: "unix", Addr: c.UnixSocket, DB: c.DB, Username: c.Username, Password: c.Password,
		}}, nil
	}

	port := "6379"
	if c.MasterName != "" {
		port = "26379"
	}
	addrs := make([]string, len(c.Addrs))
	for i, addr := range c.Addrs {
		var err error
		if addrs[i], err = hostPort(at+"addrs", addr, port); err != nil {
			return server{}, err
		}
	}
	var s server
	switch {
	case c.Cluster && c.MasterName != "":
		return server{}, refuse(at+"master_name", c.MasterName, "not together with cluster: true")
	case c.Cluster && c.DB != 0:
		return server{}, refuse(at+"db", c.DB, "not together with cluster: true: a cluster has database 0 only")
	case c.Cluster:
		s.cluster = &redis.ClusterOptions{Addrs: addrs, Username: c.Username, Password: c.Password}
	case c.MasterName != "":
		s.sentinel = &redis.FailoverOptions{
			MasterName: c.MasterName, SentinelAddrs: addrs, DB: c.DB, Username: c.Username, Password: c.Password,
			SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		}
	case len(addrs) > 1:
		return server{}, refuse(at+"addrs", c.Addrs, "several only together with cluster: true or, for Sentinels, master_name")
	default:
		s.single = &redis.Options{Network: "tcp", Addr: addrs[0], DB: c.DB, Username: c.Username, Password: c.Password}
	}
	if c.TLS != nil {
		host, _, _ := net.SplitHostPort(addrs[0])
		conf, err := c.TLS.config(at+"tls.", host)
		if err != nil {
			return server{}, err
		}
		s.setTLS(conf)
	}
	return s, nil
}
