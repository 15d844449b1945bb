// Package uuid makes the random UUIDs that claims, inboxes and the like are named
// by.
package uuid

import (
	"crypto/rand"
	"encoding/hex"
)

// New returns a UUID that is random except its version digit and variant.
func New(version int) string { return Marked(version, 0) }

// Marked is New with mark, unless it is 0, as the 12 bits behind the version digit.
func Marked(version int, mark uint16) string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails since Go 1.24
	u[6] = u[6]&0x0f | byte(version)<<4
	if mark != 0 {
		u[6], u[7] = byte(version)<<4|byte(mark>>8), byte(mark)
	}
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:], u[10:])
	return string(b[:])
}

// Pattern returns a regular expression for a UUID whose version digit is one of a character
// class: "4", "48", "0-9a-f".
func Pattern(versions string) string {
	return "[0-9a-f]{8}-[0-9a-f]{4}-[" + versions + "][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
}
