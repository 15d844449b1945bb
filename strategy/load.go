package strategy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Load reads a Config from a file: JSON if it is called .json, YAML if it is
// called .yaml or .yml.
func Load(path string) (Config, error) {
	parse := ParseYAML
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		parse = ParseJSON
	case ".yaml", ".yml":
	default:
		return Config{}, refuse("file", path, "a name ending in .json, .yaml or .yml")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, unreadable("file", path, err)
	}
	cfg, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return cfg, nil
}

// jsonString finds the strings of a JSON document.
var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// ParseJSON decodes a Config from one JSON object, as strictly as [ParseYAML].
func ParseJSON(data []byte) (Config, error) {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return Config{}, notA("JSON", err)
	}
	if !utf8.Valid(data) {
		return Config{}, notA("JSON", errors.New("it is not UTF-8"))
	}
	// JSON is YAML except some escapes in strings: package yaml does not know \/
	// and surrogate pairs.
	return ParseYAML(jsonString.ReplaceAllFunc(data, func(quoted []byte) []byte {
		var s string
		_ = json.Unmarshal(quoted, &s) // a part of what is valid
		return strconv.AppendQuoteToASCII(nil, s)
	}))
}

// ParseYAML decodes a Config from one YAML document, and takes values from the
// environment as the package comment says. Unknown keys, keys given twice, null
// and values of another type than the field's are errors. Strings need no
// quotes, whatever they look like; booleans are true, false, on or off. Anchors
// and aliases work, merge keys do not. Whether the fields agree is for [Open] to
// see.
func ParseYAML(data []byte) (Config, error) {
	in := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := in.Decode(&doc); errors.Is(err, io.EOF) {
		return Config{}, notA("YAML", errors.New("it is empty"))
	} else if err != nil {
		return Config{}, notA("YAML", err)
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return Config{}, notA("YAML", errors.New("something follows its end"))
	}
	var cfg Config
	return cfg, cfg.UnmarshalYAML(doc.Content[0])
}

// UnmarshalJSON implements [json.Unmarshaler], as strictly as [ParseJSON].
func (c *Config) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" { // by convention
		return nil
	}
	cfg, err := ParseJSON(data)
	if err == nil {
		*c = cfg
	}
	return err
}

// UnmarshalYAML implements [yaml.Unmarshaler], as strictly as [ParseYAML].
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	var cfg Config
	err := decodeStruct(n, reflect.ValueOf(&cfg).Elem(), "")
	if err == nil {
		*c = cfg
	}
	return err
}

// fieldsOf returns the fields of a struct by their names in documents.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	m := make(map[string]reflect.Value)
	for sf, f := range v.Fields() {
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			m[name] = f
		}
	}
	return m
}

// decodeStruct sets v, whose fields' names begin with at, from n. Package yaml's
// own decoder would not do: with KnownFields its errors name a type and not the
// field, and repeat the value, which may be a password.
func decodeStruct(n *yaml.Node, v reflect.Value, at string) error {
	known := fieldsOf(v)
	if n.Kind != yaml.MappingNode {
		return wrong(n, strings.TrimSuffix(at, "."), "a mapping with some of the keys "+list(known))
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f, ok := known[key.Value]
		switch {
		case !ok:
			return &fieldError{field: "key", value: show("", at+key.Value), line: key.Line, allowed: "unknown; there are " + list(known)}
		case seen[key.Value]:
			return &fieldError{field: at + key.Value, line: key.Line, allowed: "given twice"}
		}
		seen[key.Value] = true
		if err := decode(value, f, at+key.Value); err != nil {
			return err
		}
	}
	return nil
}

// decode sets v, which is called name, from n.
func decode(n *yaml.Node, v reflect.Value, name string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.ShortTag() == "!!null":
		return wrong(n, name, "a value; or leave it out")
	case v.Type() == reflect.TypeFor[*TLS]():
		v.Set(reflect.New(v.Type().Elem()))
		return decode(n, v.Elem(), name)
	case v.Kind() == reflect.Struct:
		return decodeStruct(n, v, name+".")
	case v.Kind() != reflect.Slice:
		return decodeScalar(n, v, name)
	case n.Kind != yaml.SequenceNode:
		return wrong(n, name, "a list")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		if err := decode(e, v.Index(i), fmt.Sprintf("%s[%d]", name, i)); err != nil {
			return err
		}
	}
	return nil
}

func decodeScalar(n *yaml.Node, v reflect.Value, name string) error {
	if n.Kind != yaml.ScalarNode || !strings.HasPrefix(n.ShortTag(), "!!") { // !vault and the like
		return wrong(n, name, "a single value")
	}
	text := n.Value
	if !strings.HasSuffix(name, "url") { // Open expands those
		var err error
		if text, err = expand(text, nil); err != nil {
			return &fieldError{field: name, line: n.Line, allowed: err.Error()}
		}
	}
	return setScalar(n, text, v, name)
}

// setScalar sets v from the text that n stands for.
func setScalar(n *yaml.Node, text string, v reflect.Value, name string) (err error) {
	allowed := ""
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		allowed = "true or false"
		*p, err = parseBool(text)
	case **bool:
		allowed, *p = "true or false", new(bool)
		**p, err = parseBool(text)
	case *int:
		allowed = "a whole number"
		*p, err = strconv.Atoi(text)
	case *time.Duration:
		allowed = `a duration such as "30s" or "500ms"`
		*p, err = time.ParseDuration(text)
	}
	switch {
	case err != nil:
		return wrong(n, name, allowed)
	case name == "wait" && v.Int() < 0:
		return wrong(n, name, "0s for one attempt, or more; left out, a Lock waits until its context is done")
	case name == "wait" && v.IsZero():
		v.SetInt(int64(NoWait))
	case v.CanInt() && v.IsZero() && !strings.HasSuffix(name, "db"):
		return wrong(n, name, "more than 0; or leave it out")
	}
	return nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return strconv.ParseBool(text)
}

// wrong returns the error for a node that is not what it has to be. It shows the text
// of the document, not what the environment made of it.
func wrong(n *yaml.Node, name, allowed string) error {
	value := show(name, n.Value)
	switch {
	case n.Kind == yaml.MappingNode:
		value = "(a mapping)"
	case n.Kind == yaml.SequenceNode:
		value = "(a list)"
	case n.ShortTag() == "!!null":
		value = "(null)"
	case name == "":
		value = ""
	}
	return &fieldError{field: cmp.Or(name, "document"), value: value, line: n.Line, allowed: allowed}
}

// quoted matches a part of the document, longer than one character, in a parser's error: a
// mistaken alias may be a password.
var quoted = regexp.MustCompile(`'[^']{2,}'`)

func notA(format string, err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	return &fieldError{field: "document", allowed: "not " + format + ": " + quoted.ReplaceAllString(why, "'...'")}
}
