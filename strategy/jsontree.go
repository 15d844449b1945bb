package strategy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDepth is more than a Config has levels.
const maxDepth = 16

// jsonTree reads JSON into the form that package yaml gives documents, so that
// one decoder serves both and keys given twice are still there to be refused.
func jsonTree(data []byte) (*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, notA("JSON", errNotUTF8)
	}
	r := &jsonReader{data: data, in: json.NewDecoder(bytes.NewReader(data))}
	r.in.UseNumber()
	n, err := r.value(0)
	if err == nil {
		if _, end := r.in.Token(); !errors.Is(end, io.EOF) {
			err = errMore
		}
	}
	switch {
	case errors.Is(err, io.EOF) && len(bytes.TrimSpace(data)) == 0:
		err = errEmpty
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, notA("JSON", err)
	}
	return n, nil
}

type jsonReader struct {
	data    []byte
	in      *json.Decoder
	lines   int // newlines in data[:counted]
	counted int64
}

// line is the line of the token read last.
func (r *jsonReader) line() int {
	to := r.in.InputOffset()
	r.lines += bytes.Count(r.data[r.counted:to], []byte("\n"))
	r.counted = to
	return r.lines + 1
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	token, err := r.in.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line()}
	switch t := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if t == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for r.in.More() { // in an object keys and values in turn
			e, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, e)
		}
		_, err = r.in.Token() // the closing one
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if t {
			n.Value = "true"
		}
	case nil:
		n.Tag = "!!null"
	}
	return n, err
}
