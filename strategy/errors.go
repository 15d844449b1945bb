package strategy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/distlock/locker"
)

// fieldError names a field of a Config, its wrong value and the values allowed. It matches locker.ErrInvalid and the cause.
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

// unreadable returns the error for a file that a field names.
func unreadable(field, path string, err error) error {
	why := err
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		why = p.Err // its path is the value
	}
	return &fieldError{field: field, value: show(field, path), allowed: "a file that can be read: " + why.Error(), cause: err}
}

// show quotes a value for an error, unless it is or may hold a credential.
func show(field string, value any) string {
	name := field[strings.LastIndexByte(field, '.')+1:]
	s := fmt.Sprint(value)
	switch {
	case name == "tls":
		return "(given)"
	case isCredential(name):
		s = hidden
	case name == "url" || strings.Contains(s, "://"):
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

// list joins the sorted keys of a map for an error.
func list[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
