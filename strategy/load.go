package strategy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Load reads a Config from a file: JSON if it is called .json, YAML if it is
// called .yaml or .yml.
func Load(path string) (Config, error) {
	var parse func([]byte) (Config, error)
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		parse = ParseJSON
	case ".yaml", ".yml":
		parse = ParseYAML
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

// ParseJSON decodes a Config from one JSON object. Unknown keys, keys given twice,
// null and values of another type than the field's are errors. Whether the
// fields agree is for [Open] to see.
func ParseJSON(data []byte) (Config, error) {
	doc, err := jsonTree(data)
	if err != nil {
		return Config{}, err
	}
	return parse(&decoder{json: true}, doc)
}

// ParseYAML decodes a Config from one YAML document, as strictly as [ParseJSON].
// Strings need no quotes, whatever they look like, and booleans are true, false,
// on or off. Anchors and aliases work, merge keys do not.
func ParseYAML(data []byte) (Config, error) {
	if !utf8.Valid(data) {
		return Config{}, notA("YAML", errNotUTF8)
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return Config{}, notA("YAML", errEmpty)
	case err != nil:
		return Config{}, notA("YAML", err)
	}
	if err := in.Decode(&more); !errors.Is(err, io.EOF) {
		return Config{}, notA("YAML", errMore)
	}
	return parse(&decoder{}, &doc)
}

func parse(d *decoder, doc *yaml.Node) (Config, error) {
	var cfg Config
	if err := d.fill(doc, reflect.ValueOf(&cfg).Elem(), ""); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler], as strictly as
// [ParseJSON].
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
	cfg, err := parse(&decoder{}, n)
	if err == nil {
		*c = cfg
	}
	return err
}

var (
	errEmpty   = errors.New("it is empty")
	errMore    = errors.New("something follows its end")
	errNotUTF8 = errors.New("it is not UTF-8")
	errDeep    = errors.New("it is nested too deeply")

	// quoted is what a parser repeats of a document, longer than one
	// character: an alias that is not one may be a password.
	quoted = regexp.MustCompile(`'[^']{2,}'`)
)

func notA(format string, err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	return &fieldError{field: "document", allowed: "not " + format + ": " + quoted.ReplaceAllString(why, "'...'")}
}

// unreadable is the error for a file that a field names.
func unreadable(field, path string, err error) error {
	var p *os.PathError
	why := err
	if errors.As(err, &p) {
		why = p.Err // its path is the value
	}
	return &fieldError{field: field, value: show(field, path), allowed: "a file that can be read: " + why.Error(), cause: err}
}
