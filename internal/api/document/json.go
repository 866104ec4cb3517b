package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// isJSON reports whether a document is JSON. JSON has its own parser, because some JSON strings are not valid YAML.
func isJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// jsonReader turns a valid JSON document into values, within the limits.
type jsonReader struct {
	dec   *json.Decoder
	data  []byte
	line  int // at offset
	seen  int // offset up to which lines are counted
	count int
}

func parseJSON(t Text) (*Value, error) {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(t.Data)), data: t.Data, line: t.Before + 1}
	r.dec.UseNumber()
	return r.value(0)
}

// token returns the next token and its line.
func (r *jsonReader) token() (json.Token, int, error) {
	token, err := r.dec.Token()
	end := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.seen:end], []byte("\n")) // strings of JSON have no line breaks
	r.seen = end
	if err != nil && err != io.EOF {
		err = &SyntaxError{r.line, "not well-formed JSON: " + err.Error()}
	}
	return token, r.line, err
}

func (r *jsonReader) value(depth int) (*Value, error) {
	token, line, err := r.token()
	if err != nil {
		return nil, err
	}
	return r.of(token, line, depth)
}

func (r *jsonReader) of(token json.Token, line, depth int) (*Value, error) {
	if depth > maxDepth {
		return nil, &SyntaxError{line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	if r.count++; r.count > maxValues {
		return nil, &SyntaxError{line, fmt.Sprintf("more than %d values; split the object", maxValues)}
	}
	v := &Value{Line: line}
	switch t := token.(type) {
	case nil:
	case bool:
		v.Kind, v.Scalar = Boolean, fmt.Sprint(t)
	case string:
		v.Kind, v.Scalar = String, t
	case json.Number:
		v.Kind, v.Scalar = Number, t.String()
		if !strings.ContainsAny(v.Scalar, ".eE") {
			v.Kind = Integer
		} else if f, err := t.Float64(); err == nil {
			v.number(f)
		}
	case json.Delim:
		if t == '[' {
			v.Kind = List
			return v, r.list(v, depth)
		}
		v.Kind = Mapping
		return v, r.mapping(v, depth)
	}
	return v, nil
}

func (r *jsonReader) list(v *Value, depth int) error {
	for {
		token, line, err := r.token()
		if err != nil || token == json.Delim(']') {
			return err
		}
		item, err := r.of(token, line, depth+1)
		if err != nil {
			return err
		}
		v.Items = append(v.Items, item)
	}
}

func (r *jsonReader) mapping(v *Value, depth int) error {
	for {
		token, line, err := r.token()
		if err != nil || token == json.Delim('}') {
			return err
		}
		key, _ := token.(string)
		member, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		v.Members = append(v.Members, Member{Key: key, Line: line, Value: member})
	}
}
