package strategy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills structs from documents. It is strict, and its errors say where,
// what and what else; the decoders of encoding/json and yaml are not and do not
// (and may repeat a password).
type decoder struct {
	json bool // types as JSON has them; otherwise the text of a scalar decides
}

// fill sets v, which stands at path, from n.
func (d *decoder) fill(n *yaml.Node, v reflect.Value, path string) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return d.fill(n.Content[0], v, path)
	case yaml.AliasNode:
		return d.fill(n.Alias, v, path)
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := d.fill(n, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Struct:
		return d.mapping(n, v, path)
	case reflect.Slice:
		return d.sequence(n, v, path)
	}
	return d.scalar(n, v, path)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) error {
	known := make(map[string]reflect.Value)
	for name, f := range fields(v) {
		known[name] = f
	}
	if n.Kind != yaml.MappingNode {
		return wrong(n, path, "a mapping with some of the keys "+list(known))
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		f, ok := known[name]
		at := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			return &fieldError{field: "key", value: show("", at), line: key.Line,
				allowed: "unknown; there are " + list(known)}
		case seen[name]:
			return &fieldError{field: at, line: key.Line, allowed: "given twice"}
		}
		seen[name] = true
		if err := d.fill(value, f, at); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.SequenceNode {
		return wrong(n, path, "a list")
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		if err := d.fill(e, s.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(s)
	return nil
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.ScalarNode {
		return wrong(n, path, "a single value")
	}
	// Others are made by tags, which we do not know: !vault, !!binary.
	tags := []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}
	allowed := "a string"
	ok := true
	switch {
	case v.Type() == durationType:
		allowed = `a duration such as "30s" or "500ms"`
		if d.json {
			tags = tags[:1]
		}
		var duration time.Duration
		duration, ok = parseDuration(n.Value)
		v.SetInt(int64(duration))
	case v.Kind() == reflect.Int:
		allowed = "a whole number"
		if d.json {
			tags = tags[1:2]
		}
		number, err := strconv.Atoi(n.Value)
		v.SetInt(int64(number))
		ok = err == nil
	case v.Kind() == reflect.Bool:
		allowed = "true or false"
		if d.json {
			tags = tags[3:4]
		}
		var on bool
		on, ok = parseBool(n.Value)
		v.SetBool(on)
	default:
		if d.json {
			tags = tags[:1]
		}
		v.SetString(n.Value)
	}
	if !ok || !slices.Contains(tags, n.ShortTag()) {
		return wrong(n, path, allowed)
	}
	if rule, ok := positive[path]; ok && v.IsZero() {
		return wrong(n, path, rule)
	}
	return nil
}

// wrong is the error for a value of the wrong kind.
func wrong(n *yaml.Node, path, allowed string) error {
	e := &fieldError{field: path, line: n.Line, allowed: allowed}
	if path == "" {
		e.field = "document"
	}
	switch {
	case n.Kind == yaml.MappingNode:
		e.value = "(a mapping)"
	case n.Kind == yaml.SequenceNode:
		e.value = "(a list)"
	case n.ShortTag() == "!!null":
		e.value = "(null)"
		e.allowed += "; or leave it out"
	case path != "":
		e.value = show(path, n.Value)
	}
	return e
}

func parseDuration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// parseBool takes what YAML and go-redis's URLs take.
func parseBool(s string) (on, ok bool) {
	switch strings.ToLower(s) {
	case "true", "on", "1":
		return true, true
	case "false", "off", "0":
		return false, true
	}
	return false, false
}
