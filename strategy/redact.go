package strategy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// hidden stands for a password, as in net/url.
const hidden = "xxxxx"

// isSecret and isURL go by the last name of a path such as nodes[0].password.
func isSecret(field string) bool { return strings.Contains(lastName(field), "password") }
func isURL(field string) bool    { return lastName(field) == "url" }

func lastName(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }

// redactURL hides what may be a password in raw, and everything when it cannot
// tell. It never fails: the URLs that matter most here are wrong ones.
func redactURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case raw == "":
		return ""
	case !ok || !isScheme(scheme):
		return "..."
	}
	if _, err := url.Parse(raw); err != nil || isMangled(raw) {
		return scheme + "://..."
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 { // not in the path: it would be mangled
		user, _, hasPassword := strings.Cut(rest[:i], ":")
		if !hasPassword { // more often than not it is one that lacks its colon
			rest = hidden + rest[i:]
		} else {
			rest = user + ":" + hidden + rest[i:]
		}
	}
	if hasQuery {
		rest += "?" + redactQuery(query)
	}
	return scheme + "://" + rest
}

func redactQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, _ := strings.Cut(part, "="); isPasswordParam(name) {
			// What follows may be the rest of a password with a bare &.
			parts[i] = name + "=" + hidden + "..."
			return strings.Join(parts[:i+1], "&")
		}
	}
	return query
}

// isMangled reports whether raw looks like a URL cut in the middle of a
// password, by one of / ? # that should have been escaped.
func isMangled(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@") || strings.Contains(rest, "#")
}

func isPasswordParam(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return strings.Contains(strings.ToLower(name), "pass")
}

func isScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(c))) {
			return false
		}
	}
	return s != ""
}

// String is c in JSON, without its passwords, Client, Clients and Options.
func (c Config) String() string { return string(marshal(c)) }

// GoString implements [fmt.GoStringer].
func (c Config) GoString() string { return "strategy.Config" + c.String() }

// Format implements [fmt.Formatter], so that no verb shows a password.
func (c Config) Format(f fmt.State, verb rune) { format(f, verb, c) }

// LogValue implements [slog.LogValuer].
func (c Config) LogValue() slog.Value { return logValue(c) }

// MarshalJSON implements [json.Marshaler]. Passwords are "xxxxx".
func (c Config) MarshalJSON() ([]byte, error) { return marshal(c), nil }

// MarshalYAML implements the Marshaler of YAML packages. Passwords are "xxxxx".
func (c Config) MarshalYAML() (any, error) { return treeOf(c), nil }

// String is n in JSON, without its passwords.
func (n Node) String() string { return string(marshal(n)) }

// GoString implements [fmt.GoStringer].
func (n Node) GoString() string { return "strategy.Node" + n.String() }

// Format implements [fmt.Formatter], so that no verb shows a password.
func (n Node) Format(f fmt.State, verb rune) { format(f, verb, n) }

// LogValue implements [slog.LogValuer].
func (n Node) LogValue() slog.Value { return logValue(n) }

// MarshalJSON implements [json.Marshaler]. Passwords are "xxxxx".
func (n Node) MarshalJSON() ([]byte, error) { return marshal(n), nil }

// MarshalYAML implements the Marshaler of YAML packages. Passwords are "xxxxx".
func (n Node) MarshalYAML() (any, error) { return treeOf(n), nil }

type printable interface {
	fmt.Stringer
	fmt.GoStringer
}

func format(f fmt.State, verb rune, p printable) {
	s := p.String()
	if verb == 'v' && f.Flag('#') {
		s = p.GoString()
	}
	_, _ = io.WriteString(f, s)
}

func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)  // & is common in URLs
	_ = e.Encode(treeOf(v)) // maps, slices, strings, numbers and booleans
	return bytes.TrimSpace(b.Bytes())
}

func logValue(v any) slog.Value {
	written := treeOf(v)
	attrs := make([]slog.Attr, 0, len(written))
	for _, name := range slices.Sorted(maps.Keys(written)) {
		attrs = append(attrs, slog.Any(name, written[name]))
	}
	return slog.GroupValue(attrs...)
}
