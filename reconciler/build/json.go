package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
)

// parseJSON reads a stream of JSON values. It is not left to the YAML parser, which does not know surrogate pairs.
func (p parser) parseJSON(file string, data []byte) ([]document, error) {
	if err := (chunk{text: data}).checkSize(); err != nil {
		return nil, located(file, 1, "%w", err)
	}
	r := jsonReader{parser: p, file: file, data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	r.decoder.UseNumber()
	var documents []document
	for {
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, r.syntax(err)
		}
		line := r.line()
		value, err := r.value(token, 0)
		if err != nil {
			return nil, err
		}
		if value != nil {
			documents = append(documents, document{value: value, line: line, lines: func(string) int { return line }})
		}
	}
}

// jsonReader reads one file of JSON.
type jsonReader struct {
	parser
	file    string
	data    []byte
	decoder *json.Decoder
}

// line is that of what was read last.
func (r jsonReader) line() int { return lineAt(r.data, int(r.decoder.InputOffset())) }

func (r jsonReader) fail(format string, args ...any) error {
	return located(r.file, r.line(), format, args...)
}

func (r jsonReader) syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return located(r.file, lineAt(r.data, len(r.data)), "invalid JSON: unexpected end of file")
	}
	line := r.line()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line = lineAt(r.data, int(min(syntax.Offset, int64(len(r.data)))))
	}
	return located(r.file, line, "invalid JSON: %w", err)
}

// next reads a token within a value.
func (r jsonReader) next() (json.Token, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, r.syntax(err)
	}
	return token, nil
}

// value is the value that begins with token.
func (r jsonReader) value(token json.Token, depth int) (any, error) {
	if depth > maxNesting {
		return nil, r.fail("values are nested more than %d deep", maxNesting)
	}
	text, _ := token.(string)
	if err := r.objects.spend(nodeCost + len(text)); err != nil {
		return nil, r.fail("%w", err)
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return r.array(depth)
		}
		return r.object(depth)
	case json.Number:
		value, err := number(token)
		if err != nil {
			return nil, r.fail("%w", err)
		}
		return value, nil
	default: // string, bool, nil
		return token, nil
	}
}

func (r jsonReader) array(depth int) (any, error) {
	items := []any{}
	for {
		token, err := r.next()
		if err != nil {
			return nil, err
		}
		if token == json.Delim(']') {
			return items, nil
		}
		item, err := r.value(token, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

func (r jsonReader) object(depth int) (any, error) {
	fields := map[string]any{}
	for {
		token, err := r.next()
		if err != nil {
			return nil, err
		}
		if token == json.Delim('}') {
			return fields, nil
		}
		key, _ := token.(string) // the decoder accepts nothing else here
		if _, twice := fields[key]; twice {
			return nil, r.fail("key %q appears twice", shorten(key))
		}
		if err := r.objects.spend(len(key)); err != nil {
			return nil, r.fail("%w", err)
		}
		if token, err = r.next(); err != nil {
			return nil, err
		}
		if fields[key], err = r.value(token, depth+1); err != nil {
			return nil, err
		}
	}
}

// number is a JSON number as unstructured objects have it: an int64 if it is written as one, else a float64.
func number(text json.Number) (any, error) {
	if !strings.ContainsAny(text.String(), ".eE") {
		value, err := strconv.ParseInt(text.String(), 10, 64)
		if err != nil {
			return nil, errors.New("the integer does not fit into 64 bits; quote it if it is a text")
		}
		return value, nil
	}
	value, err := text.Float64()
	if err != nil || math.IsInf(value, 0) {
		return nil, errors.New("this is not a number that can be expressed")
	}
	return value, nil
}
