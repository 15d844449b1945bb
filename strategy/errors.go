package strategy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/distlock/locker"
)

// fieldError says which field of a Config is wrong, what it is, and what is
// allowed. It matches locker.ErrInvalid and the cause.
type fieldError struct {
	field, value, allowed string
	line                  int   // in the document; 0: unknown
	cause                 error // may be nil
}

func (e *fieldError) Error() string {
	s := "locker: " + locker.ErrInvalid.Error() + ": config " + e.field
	if e.value != "" {
		s += " " + e.value
	}
	if e.line > 0 {
		s += fmt.Sprintf(" (line %d)", e.line)
	}
	return s + ": " + e.allowed
}

func (e *fieldError) Unwrap() []error {
	if e.cause == nil {
		return []error{locker.ErrInvalid}
	}
	return []error{locker.ErrInvalid, e.cause}
}

// refuse makes the error for a field; the value is shown as far as it may be.
func refuse(field string, value any, allowed string, args ...any) error {
	return &fieldError{field: field, value: show(field, value), allowed: fmt.Sprintf(allowed, args...)}
}

// show quotes a value, unless it is or may hold a password.
func show(field string, value any) string {
	s := text(field, value)
	switch {
	case isSecret(field) || isURL(field): // text has hidden what there is to hide
	case strings.Contains(s, "://"):
		s = redactURL(s)
	case strings.Contains(s, "@"):
		return "(not shown, for the @ in it)"
	}
	const most = 200
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}

func text(field string, value any) string {
	switch written := tree(reflect.ValueOf(value), field).(type) {
	case map[string]any, []any:
		b, _ := json.Marshal(written) // strings, numbers and booleans
		return string(b)
	default:
		return fmt.Sprint(written)
	}
}

// list joins the sorted names of a set for an error.
func list[M ~map[string]V, V any](m M) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
