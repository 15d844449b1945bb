package strategy

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// reference is $$, ${NAME} or ${NAME:-default}, or else a ${ that is refused.
var reference = regexp.MustCompile(`\$\$|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\})?`)

// hostChars matches hosts, ports and IPv6 addresses, of whose characters none needs
// an escape.
var hostChars = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]*$`)

// expand replaces the references to environment variables in s, as Docker
// Compose does. place, if not nil, makes a value fit between the part of s that is done
// and the rest. No error repeats s: it may be a password.
func expand(s string, place func(done, name, value, left string) (string, error)) (string, error) {
	var done strings.Builder
	for {
		at := reference.FindStringSubmatchIndex(s)
		if at == nil {
			done.WriteString(s)
			return done.String(), nil
		}
		done.WriteString(s[:at[0]])
		ref, left := s[at[0]:at[1]], s[at[1]:]
		s = left
		if ref == "$$" {
			done.WriteByte('$')
			continue
		}
		if at[2] < 0 {
			return "", errors.New("a ${ is the beginning of ${NAME} or ${NAME:-default}, without a ${ in the default; a literal $ is $$")
		}
		name := ref[len("${") : at[3]-at[0]]
		byDefault, hasDefault := strings.CutPrefix(ref[len("${")+len(name):len(ref)-len("}")], ":-")
		value, set := os.LookupEnv(name)
		switch {
		case value == "" && hasDefault:
			value = byDefault
		case !set:
			return "", fmt.Errorf("the environment variable %s is not set; ${%s:-default} has a default, and a literal $ is $$", name, name)
		}
		if place != nil {
			var err error
			if value, err = place(done.String(), name, value, left); err != nil {
				return "", err
			}
		}
		done.WriteString(value)
	}
}

// expandURL is expand for a URL. A variable that brings the :// may stand for all
// of the URL or its beginning, and is taken as it is. Behind the :// a variable
// is one value, which is escaped and stays in its place.
func expandURL(raw string) (string, error) {
	return expand(raw, func(done, name, value, left string) (string, error) {
		scheme, done, ok := strings.Cut(done, "://")
		if !ok {
			return value, nil
		}
		escaped := strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
		authority := reference.ReplaceAllString(left, "")
		if end := strings.IndexAny(authority, "/?#"); end >= 0 {
			authority = authority[:end]
		}
		switch {
		case strings.ContainsAny(done, "/?#"), strings.Contains(authority, "@"):
			return escaped, nil
		case strings.HasSuffix(scheme, "unix"): // has no host
			return strings.ReplaceAll(escaped, "%2F", "/"), nil
		case !hostChars.MatchString(value):
			return "", fmt.Errorf("the environment variable %s stands where a host or host:port does, and holds neither", name)
		}
		return value, nil
	})
}
