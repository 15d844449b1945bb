package strategy

import (
	"reflect"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// fields yields the names and values of a struct's fields that are written in
// documents.
func fields(v reflect.Value) func(yield func(name string, f reflect.Value) bool) {
	return func(yield func(string, reflect.Value) bool) {
		for sf, f := range v.Fields() {
			name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
			if name != "-" && !yield(name, f) {
				return
			}
		}
	}
}

// treeOf is tree for a Config or a Node.
func treeOf(v any) map[string]any {
	return tree(reflect.ValueOf(v), "").(map[string]any)
}

// tree is v as it is written down: maps, slices, strings, numbers and booleans.
// Zero fields are left out, passwords are hidden. field is where v stands.
func tree(v reflect.Value, field string) any {
	switch {
	case !v.IsValid():
		return ""
	case v.Type() == durationType:
		return time.Duration(v.Int()).String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return tree(v.Elem(), field)
	case reflect.Struct:
		m := make(map[string]any)
		for name, f := range fields(v) {
			if !f.IsZero() {
				m[name] = tree(f, name)
			}
		}
		return m
	case reflect.Slice:
		s := make([]any, v.Len())
		for i := range s {
			s[i] = tree(v.Index(i), field)
		}
		return s
	case reflect.String:
		switch {
		case isSecret(field):
			return hidden
		case isURL(field):
			return redactURL(v.String())
		}
	}
	return v.Interface()
}
