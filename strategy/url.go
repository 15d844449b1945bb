package strategy

import (
	"cmp"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	urlForm    = "<strategy>+<scheme>://user:password@host:port/...?parameters"
	urlEscapes = "in user names, passwords and parameters / ? # [ ] @ & % and blanks are escaped, as in %2F; " +
		"further addresses are parameters"
)

// The names of parameters. Those of tlsParams are the field of TLS named there,
// others with the name of a field of Config are that field, and all others are
// go-redis's.
const (
	lockParams    = "fencing hand_over loss_detection margin max_hold max_renewals prefix renew_interval renewal replica_acks replica_acks_timeout sticky ttl wait"
	tuningParams  = "client_name conn_max_idle_time conn_max_lifetime conn_max_lifetime_jitter dial_timeout pool_fifo protocol"
	replicaParams = "read_only replica_only route_by_latency route_by_latency_tolerance route_randomly use_disconnected_replicas"
)

// vainParams lists parameters of go-redis that change nothing about locks, and why: redisdriver
// has its own values for its connections.
var vainParams = map[string]string{
	"max_active_conns max_concurrent_dials max_idle_conns min_idle_conns pool_size pool_timeout": "a Locker has connections of its own, 20 to a server at most, and opens them as it needs them",
	"pipeline_pool_size pipeline_read_buffer_size pipeline_write_buffer_size":                    "a Locker has connections and buffers of its own",
	"max_retries max_retry_backoff min_retry_backoff":                                            "each command is sent once, and a Locker repeats what may be repeated until its context or its wait ends",
	"dialer_retries dialer_retry_timeout":                                                        "a connection is dialled once, and a Locker tries again until its context or its wait ends",
	"read_timeout write_timeout":                                                                 "a command gets 2s, and less where its context, its wait or the lock's ttl ends before; in Go, a client whose ReadTimeout is above 5s gives it more",
	"failing_timeout_seconds":                                                                    "it is about the choice among replicas, and locks are taken on masters",
	"unstable_resp3":                                                                             "go-redis ignores it",
}

// kindParams lists the parameters of a kind of deployment, which is the end of a scheme.
var kindParams = map[string]string{
	"":        "db idle_timeout max_conn_age password_file",
	"cluster": "addr max_redirects password_file",
	"sentinel": "addr db disableIdentity identitySuffix master_name password password_file sentinel_password_file username " +
		sentinelParams,
}

// sentinelParams are about questions to the Sentinels, and change nothing about commands.
const sentinelParams = "context_timeout_enabled dialer_retries dialer_retry_timeout max_retries max_retry_backoff " +
	"min_retry_backoff read_timeout write_timeout"

var tlsParams = map[string]string{
	"skip_verify":     "insecure_skip_verify",
	"tls_ca_file":     "ca_file",
	"tls_cert_file":   "cert_file",
	"tls_key_file":    "key_file",
	"tls_server_name": "server_name",
}

var schemes = []string{"redis", "redis-cluster", "redis-sentinel", "rediss", "rediss-cluster", "rediss-sentinel", "unix"}

// isShown says whether a URL is shown with the value of a parameter.
func isShown(param string) bool {
	known := []string{lockParams, tuningParams, replicaParams, kindParams[""], kindParams["cluster"], kindParams["sentinel"], "node"}
	known = slices.AppendSeq(known, maps.Keys(vainParams))
	return !isCredential(param) && (tlsParams[param] != "" || slices.Contains(strings.Fields(strings.Join(known, " ")), param))
}

// location is a URL taken apart.
type location struct {
	field, raw string // where it stands in the Config, and what stands there
	scheme     string // without the strategy
	url        *url.URL
	params     url.Values // those not taken yet
}

func (l *location) refuse(allowed string, args ...any) error {
	return refuse(l.field, l.raw, allowed, args...)
}

// parseURL never says why a URL cannot be parsed: the reason would repeat a part
// of it, and that may be of a password.
func parseURL(field, raw string) (*location, error) {
	raw, err := expandURL(raw)
	if err != nil {
		return nil, &fieldError{field: field, allowed: err.Error()}
	}
	l := &location{field: field, raw: raw}
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, l.refuse("a URL of the form %s", urlForm)
	}
	if l.url, err = url.Parse(raw); err != nil || isMangled(rest) {
		return nil, l.refuse("a URL of the form %s; %s", urlForm, urlEscapes)
	}
	if l.params, err = url.ParseQuery(l.url.RawQuery); err != nil {
		return nil, l.refuse("parameters of the form a=b&c=d; %s", urlEscapes)
	}
	l.scheme = l.url.Scheme
	return l, nil
}

// locate parses the URL of cfg, if it has one, and finds the strategy that one of
// them names, which it sets in cfg.
func (r *Registry) locate(cfg *Config) (*location, Opener, error) {
	want, wanted := r.opener(cfg.Strategy)
	if cfg.Strategy != "" && !wanted || cfg.URL == "" && cfg.Strategy == "" {
		return nil, Opener{}, refuse("strategy", cfg.Strategy, "there are %s", r.names(nil))
	}
	if cfg.URL == "" {
		return nil, want, nil
	}
	l, err := parseURL("url", cfg.URL)
	if err != nil {
		return nil, Opener{}, err
	}
	name, rest, combined := strings.Cut(l.scheme, "+")
	named, registered := r.opener(name)
	switch {
	case want.Other != nil && named.Other != nil && !combined: // one strategy may have several schemes, and judges them
	case registered && wanted && name != cfg.Strategy:
		err = refuse("strategy", cfg.Strategy, "the url says %s; give one of them, or the same", name)
	case registered:
		cfg.Strategy, want, l.scheme = name, named, rest
	case wanted: // the whole scheme is for the strategy to judge
	case !combined && slices.Contains(schemes, name):
		err = l.refuse("it names no strategy; put one before the scheme, as in setnx+%s://: there are %s", name, r.names(nil))
	default:
		err = l.refuse("unknown strategy %q; want one of %s; a URL for Redis begins with the strategy, a + and one of the schemes %s, as in setnx+redis://; another strategy needs an import, such as strategy/mysql/register", name, r.names(nil), strings.Join(schemes, ", "))
	}
	return l, want, err
}

// other returns the URL for a strategy that is not on Redis, without what this
// package has taken from it.
func (l *location) other(strategy string) (*url.URL, error) {
	if l == nil {
		return &url.URL{Scheme: strategy}, nil
	}
	for name, values := range l.params {
		if len(values) > 1 && name != "addr" && name != "node" { // not shown: it may be a part of a password
			return nil, l.refuse("it gives a parameter twice; only addr and node may be given more than once")
		}
	}
	u := *l.url
	u.Scheme, u.RawQuery = cmp.Or(l.scheme, strategy), l.params.Encode()
	return &u, nil
}

// fill puts what the URL says about Redis into c, where credentials and TLS may
// stand already. at is the prefix of the names of c's fields; more are the
// parameters allowed besides.
func (l *location) fill(c *Config, at, more string) error {
	base, kind, _ := strings.Cut(l.scheme, "-")
	path := strings.Trim(l.url.Path, "/")
	switch {
	case !slices.Contains(schemes, l.scheme):
		return l.refuse("unknown scheme %q; after %s+ want one of %s", l.scheme, c.Strategy, strings.Join(schemes, ", "))
	case base == "unix" && (l.url.Host != "" || path == ""):
		return l.refuse("the path of a socket from the root, as in unix:///run/redis.sock")
	case kind == "cluster" && path != "" && path != "0":
		return l.refuse("db %s: a cluster has database 0 only", path)
	case base != "unix" && path != "" && l.params.Get("db") != "":
		return l.refuse("the database is given twice, by the path and by db")
	case c.TLS != nil && base != "rediss":
		return refuse(at+"tls", *c.TLS, "goes with a url whose scheme begins with rediss, not with %s", l.scheme)
	}
	if err := exclude(*c, at, "not together with url, which says it", "addrs", "unix_socket", "cluster", "master_name", "db"); err != nil {
		return err
	}
	known := strings.Fields(kindParams[kind] + " " + tuningParams + " " + more)
	if base == "rediss" {
		known = slices.AppendSeq(known, maps.Keys(tlsParams))
	}
	if err := l.checkNames(known); err != nil {
		return err
	}
	l.takePlace(c, base, kind, path)
	if err := l.take(c, at, slices.Sorted(maps.Keys(l.params))); err != nil {
		return err
	}
	if kind == "sentinel" && c.MasterName == "" {
		return l.refuse("it needs the parameter master_name, the name of the master at the Sentinels")
	}
	return nil
}

// takePlace takes what c has as lists or flags, and makes parameters of the rest
// that stands before the ?.
func (l *location) takePlace(c *Config, base, kind, path string) {
	switch {
	case c.TLS != nil:
		c.TLS = new(*c.TLS) // it is the caller's
	case base == "rediss":
		c.TLS = new(TLS)
	}
	c.URL, c.Cluster = l.raw, kind == "cluster"
	switch host := l.url.Host; {
	case base == "unix":
		c.UnixSocket = l.url.Path
	case l.url.Hostname() == "":
		c.Addrs = []string{"localhost" + host} // as in go-redis
	default:
		c.Addrs = []string{host}
	}
	c.Addrs = append(c.Addrs, l.params["addr"]...)
	delete(l.params, "addr")

	if base != "unix" && kind != "cluster" && path != "" {
		l.params.Set("db", path)
	}
	prefix := "" // of the fields for user and password
	if kind == "sentinel" {
		prefix = "sentinel_"
	}
	password, _ := l.url.User.Password()
	l.params.Set(prefix+"username", l.url.User.Username())
	l.params.Set(prefix+"password", password)
}

// checkNames refuses parameters that are not among those there are. It does not
// name one behind a password, which may end there by a bare &.
func (l *location) checkNames(known []string) error {
	secret := false
	for part := range strings.SplitSeq(l.url.RawQuery, "&") {
		name, _ := splitParam(part)
		switch {
		case part == "":
		case slices.Contains(known, name):
			secret = secret || !isShown(name)
		case tlsParams[name] != "":
			return l.refuse("%s goes with a scheme that begins with rediss, not with %s", name, l.scheme)
		case slices.Contains(strings.Fields(replicaParams), name):
			return l.refuse("%s is about reading from replicas, and locks are taken on masters", name)
		case slices.Contains(schemes, l.scheme) && inVain(name) != "":
			return l.refuse("%s has no effect on locks, so leave it out: %s", name, inVain(name))
		case secret:
			return l.refuse("an unknown parameter behind the password, in which & is %%26")
		default:
			slices.Sort(known)
			return l.refuse("unknown parameter %s; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// inVain says why a parameter has no effect; "" if it is none of vainParams.
func inVain(name string) string {
	for params, why := range vainParams {
		if slices.Contains(strings.Fields(params), name) {
			return why
		}
	}
	return ""
}

// take moves parameters into c, whose fields' names begin with at. Blank is the
// default.
func (l *location) take(c *Config, at string, names []string) error {
	fields := fieldsOf(reflect.ValueOf(c).Elem())
	if c.TLS != nil {
		tls := fieldsOf(reflect.ValueOf(c.TLS).Elem())
		for param, field := range tlsParams {
			fields[param] = tls[field]
		}
	}
	for _, name := range names {
		value, given := l.params.Get(name), len(l.params[name])
		delete(l.params, name)
		v, ok := fields[name]
		switch {
		case given > 1:
			return &fieldError{field: name, allowed: "given once in a url"}
		case value == "":
		case !ok:
			if c.tuning == nil {
				c.tuning = make(url.Values)
			}
			c.tuning.Set(name, value)
		case !v.IsZero():
			return refuse(at+name, reflect.Indirect(v).Interface(), "not together with the one in the url")
		default:
			n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
			if err := setScalar(n, value, v, name); err != nil {
				return err
			}
		}
	}
	return nil
}
