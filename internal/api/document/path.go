package document

import (
	"strconv"
	"strings"
)

// Path is the path of a field in a document, as a list from the field up to the root. It becomes text only for a finding.
// A nil Path is the document itself.
type Path struct {
	up    *Path
	name  string // of a field, or a map's key
	index int    // of a list's element
	step  pathStep
}

type pathStep uint8

const (
	fieldStep pathStep = iota // .name
	keyStep                   // [name]
	indexStep                 // [index]
)

// Field returns the path of a field of p.
func (p *Path) Field(name string) *Path { return &Path{up: p, name: name, step: fieldStep} }

// Key returns the path of an entry of the map p.
func (p *Path) Key(key string) *Path { return &Path{up: p, name: key, step: keyStep} }

// At returns the path of an element of the list p.
func (p *Path) At(i int) *Path { return &Path{up: p, index: i, step: indexStep} }

// String returns the path as text: spec.http[0].match[1].headers[x-user].
func (p *Path) String() string { return string(p.appendTo(nil)) }

func (p *Path) appendTo(b []byte) []byte {
	if p == nil {
		return b
	}
	b = p.up.appendTo(b)
	switch p.step {
	case indexStep:
		return append(strconv.AppendInt(append(b, '['), int64(p.index), 10), ']')
	case keyStep:
		return append(append(append(b, '['), p.name...), ']')
	}
	if len(b) > 0 {
		b = append(b, '.')
	}
	return append(b, p.name...)
}

// LineOf returns the line of a field in the tree. If the tree does not have the field, it returns the line of the nearest field
// around it.
func (v *Value) LineOf(field string) int {
	line, _ := v.PlaceOf(field)
	return line
}

// PlaceOf returns the line and the column of a field in the tree, or of the nearest field around it.
func (v *Value) PlaceOf(field string) (line, column int) {
	line, column = v.Line, v.Column
	for field != "" {
		var step string
		switch field[0] {
		case '.':
			field = field[1:]
			continue
		case '[':
			end := strings.IndexByte(field, ']')
			if end < 0 {
				return line, column
			}
			step, field = field[1:end], field[end+1:]
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			step, field = field[:end], field[end:]
		}
		if v.Kind == List {
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.Items) {
				return line, column
			}
			v = v.Items[i]
			line, column = v.Line, v.Column
			continue
		}
		m := v.Find(step)
		if m == nil {
			return line, column
		}
		v, line, column = m.Value, m.Line, m.Column
	}
	return line, column
}

// Find returns the member with the name of a field. Documents may have it in lowerCamelCase or snake_case.
func (v *Value) Find(step string) *Member {
	for i := range v.Members {
		if key := v.Members[i].Key; key == step || LowerCamel(key) == step {
			return &v.Members[i]
		}
	}
	return nil
}

// LowerCamel returns the JSON name of a field that is written in snake_case.
func LowerCamel(s string) string {
	if strings.IndexByte(s, '_') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	upper := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_':
			upper = true
			continue
		case upper && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		}
		upper = false
		b = append(b, c)
	}
	return string(b)
}
