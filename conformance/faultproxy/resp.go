package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errProtocol marks what is not RESP, as opposed to a broken connection.
var errProtocol = errors.New("faultproxy: protocol error")

// readCommand reads one command, as its arguments and as it was sent. There are
// none in an empty command, which Redis does not answer.
func readCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' {
		return strings.Fields(string(line)), line, nil // an inline command
	}
	raw = line
	n, err := length(line)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		start := len(raw)
		var kind byte
		if raw, kind, err = appendValue(raw, r); err != nil {
			return nil, nil, err
		}
		_, arg, _ := bytes.Cut(raw[start:], []byte("\r\n"))
		if kind != '$' || len(arg) < 2 {
			return nil, nil, fmt.Errorf("%w: argument %q", errProtocol, raw[start:])
		}
		args = append(args, string(arg[:len(arg)-2]))
	}
	return args, raw, nil
}

// readReply reads one reply or push message with the attributes before it.
func readReply(r *bufio.Reader) (raw []byte, push bool, err error) {
	raw, kind, err := appendValue(nil, r)
	return raw, kind == '>', err
}

// appendValue appends the next value to buf and returns its type.
func appendValue(buf []byte, r *bufio.Reader) ([]byte, byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, 0, err
	}
	buf = append(buf, line...)
	var children int
	switch kind := line[0]; kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return buf, kind, nil
	case '$', '!', '=':
		n, err := length(line)
		if err != nil || n < 0 {
			return buf, kind, err
		}
		start := len(buf)
		buf = append(buf, make([]byte, n+len("\r\n"))...)
		_, err = io.ReadFull(r, buf[start:])
		return buf, kind, err
	case '*', '~', '>':
		children, err = length(line)
	case '%':
		children, err = length(line)
		children *= 2
	case '|': // attributes, and then the value they belong to
		children, err = length(line)
		children *= 2
	default:
		return nil, 0, fmt.Errorf("%w: value %q", errProtocol, line)
	}
	if err != nil {
		return nil, 0, err
	}
	for range children {
		if buf, _, err = appendValue(buf, r); err != nil {
			return nil, 0, err
		}
	}
	if line[0] == '|' {
		return appendValue(buf, r)
	}
	return buf, line[0], nil
}

// maxLength is more than Redis takes or gives at a time.
const maxLength = 1 << 30

// length returns the number after the type: -1 is a null.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSuffix(line[1:], []byte("\r\n"))))
	if err != nil || n < -1 || n > maxLength {
		return 0, fmt.Errorf("%w: length in %q", errProtocol, line)
	}
	return n, nil
}
