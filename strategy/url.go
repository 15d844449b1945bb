package strategy

import (
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

// lockParams are the parameters of every URL: the fields of Config about locks.
var lockParams = []string{
	"ttl", "wait", "renewal", "renew_interval", "max_renewals", "max_hold", "prefix", "fencing",
	"replica_acks", "replica_acks_timeout",
}

// location is a URL taken apart.
type location struct {
	field    string // where it stands in the Config
	raw      string
	strategy string // "" if it names none
	scheme   string // without the strategy
	url      *url.URL
	params   url.Values // those not taken yet
	known    []string   // the names of parameters that are not go-redis's
}

func (l *location) refuse(allowed string, args ...any) error {
	return refuse(l.field, l.raw, allowed, args...)
}

// parseLocation never says why a URL cannot be parsed: the reason would repeat
// a part of it, and that may be of a password.
func parseLocation(field, raw string) (*location, error) {
	l := &location{field: field, raw: raw}
	if !strings.Contains(raw, "://") {
		return nil, l.refuse("a URL of the form %s", urlForm)
	}
	u, err := url.Parse(raw)
	if err != nil || isMangled(raw) {
		return nil, l.refuse("a URL of the form %s; %s", urlForm, urlEscapes)
	}
	if l.params, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, l.refuse("parameters of the form a=b&c=d; %s", urlEscapes)
	}
	l.url = u
	l.scheme = u.Scheme
	return l, nil
}

// locate finds the strategy that cfg and its URL, if any, name, and sets it in
// cfg.
func (r *Registry) locate(cfg *Config) (*location, Opener, error) {
	want, wanted := r.opener(cfg.Strategy)
	if cfg.Strategy != "" && !wanted || cfg.URL == "" && cfg.Strategy == "" {
		return nil, Opener{}, refuse("strategy", cfg.Strategy, "there are %s", r.names())
	}
	if cfg.URL == "" {
		return nil, want, nil
	}
	l, err := parseLocation("url", cfg.URL)
	if err != nil {
		return nil, Opener{}, err
	}
	name, rest, combined := strings.Cut(l.scheme, "+")
	named, registered := r.opener(name)
	_, transport := transports[name]
	switch {
	case registered:
		if wanted && name != cfg.Strategy {
			return nil, Opener{}, refuse("strategy", cfg.Strategy, "the url says %s; give one of them, or the same", name)
		}
		cfg.Strategy, want = name, named
		l.strategy, l.scheme = name, rest
	case wanted: // the whole scheme is for the strategy to judge
	case combined:
		return nil, Opener{}, l.refuse("unknown strategy %q; there are %s", name, r.names())
	case transport:
		return nil, Opener{}, l.refuse("it names no strategy; put one before the scheme, as in setnx+%s://: there are %s", name, r.names())
	default:
		return nil, Opener{}, l.refuse("unknown strategy %q; there are %s, and before a + and one of the schemes %s", name, r.names(), list(transports))
	}
	l.known = lockParams
	return l, want, nil
}

// one takes a parameter that may be given once out of l. Blank means default, as
// in go-redis.
func (l *location) one(name string) (string, error) {
	values := l.params[name]
	delete(l.params, name)
	if len(values) > 1 {
		return "", refuse(name, strings.Join(values, ", "), "given once in a url")
	}
	return strings.Join(values, ""), nil
}

// set takes the parameter out of l and puts it into a field.
func (l *location) set(param string, into any, field string) error {
	given := l.params.Has(param)
	value, err := l.one(param)
	if !given || value == "" || err != nil {
		return err
	}
	f := find(into, field)
	if !f.IsZero() {
		return refuse(field, f.Interface(), "not together with %s in the url", param)
	}
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	return (&decoder{}).fill(&n, f, param)
}

// setLocks moves the parameters about locks into cfg.
func (l *location) setLocks(cfg *Config) error {
	for _, name := range lockParams {
		if err := l.set(name, cfg, name); err != nil {
			return err
		}
	}
	return nil
}

// unknown refuses parameters that are not among those there are. It does not
// name one behind a password, which may end there by a bare &.
func (l *location) unknown(names []string, known []string) error {
	password := false
	for part := range strings.SplitSeq(l.url.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(name)
		if i := slices.Index(names, plain); i >= 0 && password {
			names = slices.Delete(slices.Clone(names), i, i+1)
		}
		password = password || isPasswordParam(name)
	}
	what := "an unknown parameter behind the password, in which & is %26"
	if len(names) > 0 {
		what = "unknown parameter " + strings.Join(names, ", ")
	}
	known = append(known, l.known...)
	slices.Sort(known)
	return l.refuse("%s; there are %s", what, strings.Join(known, ", "))
}

// find is the field of a struct, given by a pointer, with the name it has in
// documents.
func find(in any, name string) reflect.Value {
	for n, f := range fields(reflect.ValueOf(in).Elem()) {
		if n == name {
			return f
		}
	}
	panic("no field " + name)
}
