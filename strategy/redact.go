package strategy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// hidden stands for a credential, as in net/url.
const hidden = "xxxxx"

// isCredential says whether the field or parameter of a name is one.
func isCredential(name string) bool {
	return slices.Contains([]string{"username", "password", "sentinel_username", "sentinel_password"}, name)
}

// redactURL shows the scheme, the host, the path and the parameters known to be
// no credentials, with the names of variables but not their defaults. It never fails: the
// URLs that matter most here are wrong ones.
func redactURL(raw string) string {
	// A reference is parsed as a number, which may stand in each part of a URL, port
	// included. The number is one that the URL does not have.
	var refs []string
	stand := "90000"
	for strings.Contains(raw, stand) {
		stand += "0"
	}
	number := func(i int) string { return stand + strconv.Itoa(10000+i) + "1" }
	s := redactPlain(reference.ReplaceAllStringFunc(raw, func(ref string) string {
		name, _, hasDefault := strings.Cut(ref, ":-")
		switch {
		case ref == "${":
			return ref
		case hasDefault:
			ref = name + ":-" + hidden + "}"
		}
		refs = append(refs, ref)
		return number(len(refs) - 1)
	}))
	for i, ref := range refs {
		s = strings.ReplaceAll(s, number(i), ref)
	}
	return s
}

// redactPlain is redactURL for one without references.
func redactPlain(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if raw == "" {
		return ""
	}
	if !ok || !isScheme(scheme) {
		return hidden
	}
	u, err := url.Parse(raw)
	if err != nil || isMangled(rest) {
		return scheme + "://" + hidden
	}
	s := scheme + "://"
	if u.User != nil {
		s += hidden + "@"
	}
	s += u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		s += "?" + redactQuery(u.RawQuery)
	}
	return s
}

// redactQuery ends at the first value it hides: the rest may be the rest of a
// password with a bare &.
func redactQuery(query string) string {
	var shown []string
	for part := range strings.SplitSeq(query, "&") {
		name, value := splitParam(part)
		if !isShown(name) || strings.Contains(value, "@") {
			shown = append(shown, url.QueryEscape(name)+"="+hidden)
			break
		}
		shown = append(shown, part)
	}
	return strings.Join(shown, "&")
}

// splitParam returns no name for a parameter that is escaped wrongly.
func splitParam(part string) (name, value string) {
	name, value, _ = strings.Cut(part, "=")
	plain, err1 := url.QueryUnescape(name)
	value, err2 := url.QueryUnescape(value)
	if err1 != nil || err2 != nil {
		return "", ""
	}
	return plain, value
}

// isMangled reports whether a URL, here without its scheme, looks as if it were
// cut in the middle of a password, by one of / ? # that should have been escaped.
func isMangled(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@") || strings.Contains(rest, "#")
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

// written is c as documents have it, without credentials.
func (c Config) written() map[string]any {
	type plain Config // has no methods
	hide(&c.URL, &c.Username, &c.Password, &c.SentinelUsername, &c.SentinelPassword)
	m := asMap(plain(c))
	if c.Wait == NoWait {
		m["wait"] = "0s"
	}
	return m
}

func (n Node) written() map[string]any {
	type plain Node
	hide(&n.URL, &n.Username, &n.Password)
	return asMap(plain(n))
}

func hide(u *string, credentials ...*string) {
	*u = redactURL(*u)
	for _, c := range credentials {
		if *c != "" {
			*c = hidden
		}
	}
}

// asMap goes through YAML, which has durations as they are read; encoding/json
// would make them numbers.
func asMap(v any) map[string]any {
	m := make(map[string]any)
	if b, err := yaml.Marshal(v); err == nil { // it takes strings, numbers and booleans
		_ = yaml.Unmarshal(b, m)
	}
	return m
}

func asJSON(m map[string]any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // & is common in URLs
	_ = e.Encode(m)        // never fails: m comes from asMap
	return strings.TrimSpace(b.String())
}

// String is c in JSON, without its credentials, Client, Clients and Options.
func (c Config) String() string { return asJSON(c.written()) }

// Format implements [fmt.Formatter], so that no verb shows a credential.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue implements [slog.LogValuer].
func (c Config) LogValue() slog.Value { return slog.AnyValue(c.written()) }

// MarshalJSON implements [json.Marshaler]. Credentials are "xxxxx".
func (c Config) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// MarshalYAML implements [yaml.Marshaler]. Credentials are "xxxxx".
func (c Config) MarshalYAML() (any, error) { return c.written(), nil }

// String is n in JSON, without its credentials.
func (n Node) String() string { return asJSON(n.written()) }

// Format implements [fmt.Formatter], so that no verb shows a credential.
func (n Node) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, n.String()) }

// MarshalJSON implements [json.Marshaler]. Credentials are "xxxxx".
func (n Node) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// MarshalYAML implements [yaml.Marshaler]. Credentials are "xxxxx".
func (n Node) MarshalYAML() (any, error) { return n.written(), nil }
