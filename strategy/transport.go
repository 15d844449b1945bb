package strategy

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// transport is a scheme by which Redis is reached.
type transport struct {
	base   string // the scheme go-redis knows
	tls    bool
	port   string // default
	parse  func(url string) (server, error)
	params string // go-redis's own, for errors
}

const (
	paramsAll = "client_name conn_max_idle_time conn_max_lifetime conn_max_lifetime_jitter dial_timeout max_active_conns max_concurrent_dials " +
		"max_idle_conns max_retries max_retry_backoff min_idle_conns min_retry_backoff pipeline_pool_size pipeline_read_buffer_size " +
		"pipeline_write_buffer_size pool_fifo pool_size pool_timeout protocol read_timeout write_timeout"
	paramsSingle   = paramsAll + " db idle_timeout max_conn_age"
	paramsCluster  = paramsAll + " addr dialer_retries dialer_retry_timeout failing_timeout_seconds max_redirects"
	paramsSentinel = paramsAll + " addr context_timeout_enabled db dialer_retries dialer_retry_timeout disableIdentity identitySuffix " +
		"master_name password unstable_resp3 username"
)

var transports = map[string]transport{
	"redis":           {"redis", false, "6379", parseSingle, paramsSingle},
	"rediss":          {"rediss", true, "6379", parseSingle, paramsSingle},
	"unix":            {"unix", false, "", parseSingle, paramsSingle},
	"redis-cluster":   {"redis", false, "6379", parseCluster, paramsCluster},
	"rediss-cluster":  {"rediss", true, "6379", parseCluster, paramsCluster},
	"redis-sentinel":  {"redis", false, "26379", parseSentinel, paramsSentinel},
	"rediss-sentinel": {"rediss", true, "26379", parseSentinel, paramsSentinel},
}

// names are the parameters of go-redis, and those of TLS.
func (t transport) names() []string {
	names := strings.Fields(t.params)
	if t.tls {
		names = slices.AppendSeq(names, maps.Keys(tlsParams))
	}
	return names
}

// server is one Redis deployment: one of the three.
type server struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	sentinel *redis.FailoverOptions

	from *location // or nil
}

func parseSingle(u string) (s server, err error) {
	s.single, err = redis.ParseURL(u)
	return s, err
}

func parseCluster(u string) (s server, err error) {
	s.cluster, err = redis.ParseClusterURL(u)
	return s, err
}

func parseSentinel(u string) (s server, err error) {
	s.sentinel, err = redis.ParseFailoverURL(u)
	return s, err
}

// id tells servers apart.
func (s server) id() string {
	if s.single.Network == "unix" {
		return s.single.Addr
	}
	return strings.ToLower(s.single.Addr)
}

// setTLS replaces what go-redis made of a URL.
func (s server) setTLS(c *tls.Config) {
	switch {
	case s.cluster != nil:
		s.cluster.TLSConfig = c
	case s.sentinel != nil:
		s.sentinel.TLSConfig = c
	default:
		s.single.TLSConfig = c
	}
}

// credentials are a user name and password of s, for Redis or for Sentinels.
type credentials struct {
	prefix         string // of their fields in a Config
	user, password *string
}

func (s server) credentials() []credentials {
	switch {
	case s.cluster != nil:
		return []credentials{{"", &s.cluster.Username, &s.cluster.Password}}
	case s.sentinel != nil:
		return []credentials{
			{"", &s.sentinel.Username, &s.sentinel.Password},
			{"sentinel_", &s.sentinel.SentinelUsername, &s.sentinel.SentinelPassword},
		}
	}
	return []credentials{{"", &s.single.Username, &s.single.Password}}
}

// check says why a lock cannot be built on what go-redis takes.
func (s server) check() (why string) {
	const master = "locks are taken on masters"
	switch {
	case s.cluster != nil:
		if o := s.cluster; o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return "not together with read_only, route_by_latency or route_randomly: " + master
		}
	case s.sentinel != nil:
		if o := s.sentinel; o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly || o.UseDisconnectedReplicas {
			return "not together with replica_only, use_disconnected_replicas, route_by_latency or route_randomly: " + master
		}
		if s.sentinel.MasterName == "" {
			return "it needs the parameter master_name, the name of the master at the Sentinels"
		}
	}
	return ""
}

// connect makes the client. It opens no connection yet. go-redis panics on
// sizes it cannot use.
func (s server) connect() (rdb redis.UniversalClient, err error) {
	defer func() {
		if p := recover(); p != nil {
			rdb, err = nil, fmt.Errorf("connecting: %v", p)
			if s.from != nil {
				err = s.from.refuse("sizes go-redis can use: %v", p)
			}
		}
	}()
	switch {
	case s.cluster != nil:
		return redis.NewClusterClient(s.cluster), nil
	case s.sentinel != nil:
		return redis.NewFailoverClient(s.sentinel), nil
	}
	return redis.NewClient(s.single), nil
}

// hostPort checks an address and adds the default port.
func hostPort(field, addr, port string) (string, error) {
	const allowed = "host or host:port, with a port of 1 to 65535; user, password and the like stand elsewhere"
	host := addr
	if h, p, err := net.SplitHostPort(addr); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(addr, "[") && strings.HasSuffix(addr, "]") {
		host = addr[1 : len(addr)-1]
	} else if strings.Contains(addr, ":") {
		return "", refuse(field, addr, allowed)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, "/?#@,;[]\\ \t\r\n") {
		return "", refuse(field, addr, allowed)
	}
	return net.JoinHostPort(host, port), nil
}

// checkHost is hostPort for the address within a URL, where a missing host is
// localhost, as in go-redis.
func (l *location) checkHost(u *url.URL, port string) error {
	if u.Hostname() == "" {
		u.Host = "localhost" + u.Host
	}
	host, err := hostPort("", u.Host, port)
	if err != nil {
		return l.refuse("its host is host or host:port, with a port of 1 to 65535; further addresses are parameters")
	}
	u.Host = host
	return nil
}

// checkDB checks the number of the database, which is the path of the URL or a
// parameter.
func (l *location) checkDB() error {
	if strings.HasPrefix(l.scheme, "unix") {
		return l.checkDBs(l.params["db"])
	}
	path := strings.Trim(l.url.Path, "/")
	if !strings.HasSuffix(l.scheme, "-cluster") {
		return l.checkDBs(slices.Concat(l.params["db"], []string{path}))
	}
	if path != "" && path != "0" {
		return l.refuse("db %s: a cluster has database 0 only", path)
	}
	return nil
}

func (l *location) checkDBs(values []string) error {
	for _, db := range values {
		if n, err := strconv.Atoi(db); db != "" && (err != nil || n < 0) {
			return l.refuse("db %s: a database is a whole number, 0 or more", db)
		}
	}
	return nil
}
