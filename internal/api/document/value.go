package document

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds: the types of JSON, with a separate kind for whole numbers.
const (
	Null Kind = iota
	Boolean
	Integer
	Number
	String
	List
	Mapping
)

// String returns the kind with its article.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a whole number", "a number", "a string", "a list", "a mapping"}[k]
}

// Value is a value in a parsed document. Aliases and merge keys of YAML are expanded, and each scalar has one type.
type Value struct {
	Kind    Kind
	Line    int      // in the file
	Column  int      // in the line, from 1; 0 if it is not known, as in JSON
	Scalar  string   // of scalars: strings decoded, numbers and booleans in JSON's form
	Items   []*Value // of lists
	Members []Member // of mappings, in the order of the document; keys may repeat

	plain bool // of strings: written without quotes
}

// Member is one entry of a mapping.
type Member struct {
	Key  string
	Line int // of the key
	// Column is the column of the key, from 1; 0 if it is not known.
	Column int
	Value  *Value
}

// Get returns the value of the first member with a name; nil if there is none, or if v is not a mapping.
func (v *Value) Get(key string) *Value {
	if v == nil {
		return nil
	}
	for _, m := range v.Members {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Text returns the content of a string; "" for other values.
func (v *Value) Text() string {
	if v == nil || v.Kind != String {
		return ""
	}
	return v.Scalar
}

// grower turns YAML nodes into values, within the limits.
type grower struct {
	offset int // lines of the file before the document
	count  int
}

func (g *grower) grow(n *yaml.Node, depth int) (*Value, error) {
	v, err := g.value(n, depth)
	if v != nil {
		v.Column = n.Column
	}
	return v, err
}

func (g *grower) value(n *yaml.Node, depth int) (*Value, error) {
	line := g.offset + n.Line
	if depth > maxDepth {
		return nil, &SyntaxError{line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	if g.count++; g.count > maxValues {
		return nil, &SyntaxError{line, fmt.Sprintf("more than %d values with all aliases expanded; split the object", maxValues)}
	}
	switch n.Kind {
	case yaml.AliasNode:
		v, err := g.grow(n.Alias, depth+1) // the depth also ends an alias that contains itself
		if v != nil {
			v.Line = line
		}
		return v, err
	case yaml.MappingNode:
		return g.mapping(n, depth)
	case yaml.SequenceNode:
		v := &Value{Kind: List, Line: line, Items: make([]*Value, 0, len(n.Content))}
		for _, c := range n.Content {
			item, err := g.grow(c, depth+1)
			if err != nil {
				return nil, err
			}
			v.Items = append(v.Items, item)
		}
		return v, nil
	case yaml.ScalarNode:
		return scalar(n, line)
	}
	return nil, &SyntaxError{line, "not a value"}
}

func (g *grower) mapping(n *yaml.Node, depth int) (*Value, error) {
	v := &Value{Kind: Mapping, Line: g.offset + n.Line, Members: make([]Member, 0, len(n.Content)/2)}
	var merged []*Value
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		child, err := g.grow(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merged = append(merged, child)
			continue
		}
		key, err := g.grow(k, depth+1)
		if err != nil {
			return nil, err
		}
		if key.Kind == Null || key.Kind == List || key.Kind == Mapping {
			return nil, &SyntaxError{key.Line, "a key must be a string, not " + key.Kind.String()}
		}
		v.Members = append(v.Members, Member{Key: key.Scalar, Line: key.Line, Column: key.Column, Value: child})
	}
	if len(merged) == 0 {
		return v, nil
	}
	have := make(map[string]bool, len(v.Members))
	for _, m := range v.Members {
		have[m.Key] = true
	}
	for _, m := range merged {
		if err := v.merge(m, have); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// merge adds the members of other mappings that v does not have, for the merge key "<<" of YAML. The first mapping has precedence.
func (v *Value) merge(from *Value, have map[string]bool) error {
	switch from.Kind {
	case List:
		for _, item := range from.Items {
			if item.Kind != Mapping {
				return &SyntaxError{item.Line, "<< takes mappings, not " + item.Kind.String()}
			}
			if err := v.merge(item, have); err != nil {
				return err
			}
		}
		return nil
	case Mapping:
		for _, m := range from.Members {
			if !have[m.Key] {
				have[m.Key] = true
				v.Members = append(v.Members, m)
			}
		}
		return nil
	}
	return &SyntaxError{from.Line, "<< takes a mapping, not " + from.Kind.String()}
}

// scalar sets the type of a scalar node, and its form in JSON.
func scalar(n *yaml.Node, line int) (*Value, error) {
	v := &Value{Line: line, Scalar: n.Value}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		v.Scalar = ""
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, &SyntaxError{line, fmt.Sprintf("%q is not a boolean", n.Value)}
		}
		v.Kind, v.Scalar = Boolean, strconv.FormatBool(b)
	case "!!int":
		return whole(n, v)
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil {
			return nil, &SyntaxError{line, fmt.Sprintf("%q is not a number", n.Value)}
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, &SyntaxError{line, "infinity and not-a-number have no place here"}
		}
		v.number(f)
	case "!!str", "!!timestamp": // dates are strings in JSON
		v.Kind, v.plain = String, n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	case "!!binary":
		return nil, &SyntaxError{line, "!!binary is not supported; write a base64 string without the tag"}
	default:
		return nil, &SyntaxError{line, fmt.Sprintf("the YAML tag %s is not supported", tag)}
	}
	return v, nil
}

// number makes v the number f. A whole number is an integer in any notation.
func (v *Value) number(f float64) {
	v.Kind, v.Scalar = Number, strconv.FormatFloat(f, 'g', -1, 64)
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		v.Kind, v.Scalar = Integer, strconv.FormatFloat(f, 'f', 0, 64)
	}
}

func whole(n *yaml.Node, v *Value) (*Value, error) {
	v.Kind = Integer
	var i int64
	if n.Decode(&i) == nil {
		v.Scalar = strconv.FormatInt(i, 10)
		return v, nil
	}
	var u uint64
	if n.Decode(&u) == nil {
		v.Scalar = strconv.FormatUint(u, 10)
		return v, nil
	}
	return nil, &SyntaxError{v.Line, fmt.Sprintf("%q is not a 64-bit number", n.Value)}
}

// JSON returns the value as JSON.
func (v *Value) JSON() []byte { return v.appendJSON(nil) }

// appendJSON appends the value as JSON. Of duplicate keys it uses the first, as Get does.
func (v *Value) appendJSON(b []byte) []byte {
	switch v.Kind {
	case Null:
		return append(b, "null"...)
	case String:
		return appendString(b, v.Scalar)
	case List:
		b = append(b, '[')
		for i, item := range v.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	case Mapping:
		b = append(b, '{')
		seen := make(map[string]bool, len(v.Members))
		for _, m := range v.Members {
			if seen[m.Key] {
				continue
			}
			if len(seen) > 0 {
				b = append(b, ',')
			}
			seen[m.Key] = true
			b = append(appendString(b, m.Key), ':')
			b = m.Value.appendJSON(b)
		}
		return append(b, '}')
	}
	return append(b, v.Scalar...)
}

// appendString appends a JSON string. Invalid UTF-8, which parsing has refused already, would become U+FFFD.
func appendString(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // cannot happen for a string
		return append(b, `""`...)
	}
	return append(b, quoted...)
}
