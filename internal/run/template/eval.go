package template

import (
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"
)

// pipe returns the value of a pipeline, and declares or sets its variables.
func (s *state) pipe(dot any, p *parse.PipeNode) (v any, err error) {
	if p == nil {
		return nil, nil
	}
	for i, c := range p.Cmds {
		var last []any // the value of the command before is the last argument of this one
		if i > 0 {
			last = []any{v}
		}
		if v, err = s.command(dot, c, last); err != nil {
			return nil, err
		}
	}
	for _, d := range p.Decl {
		if p.IsAssign {
			s.set(d.Ident[0], v)
		} else {
			s.variables = append(s.variables, variable{d.Ident[0], v})
		}
	}
	return v, nil
}

// command returns the value of one command of a pipeline.
func (s *state) command(dot any, c *parse.CommandNode, last []any) (any, error) {
	first := c.Args[0]
	if id, ok := first.(*parse.IdentifierNode); ok {
		return s.call(dot, id, c.Args[1:], last)
	}
	if _, ok := first.(*parse.NilNode); ok {
		return nil, s.at(first, fmt.Errorf("nil is not a command"))
	}
	v, err := s.operand(dot, first)
	f, called := v.(Function)
	switch {
	case err != nil:
		return nil, err
	case called:
		return s.apply(dot, first, f, c.Args[1:], last)
	case len(c.Args) > 1 || len(last) > 0:
		return nil, s.at(first, fmt.Errorf("%s has arguments, but is not a function", first))
	}
	return v, nil
}

// operand returns the value of a constant, a variable, a field, or a pipeline in parentheses.
func (s *state) operand(dot any, node parse.Node) (any, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return s.number(n)
	case *parse.FieldNode:
		return s.fields(n, dot, n.Ident)
	case *parse.VariableNode:
		var v any
		if found := s.variable(n.Ident[0]); found != nil {
			v = found.value
		}
		return s.fields(n, v, n.Ident[1:])
	case *parse.ChainNode:
		v, err := s.operand(dot, n.Node)
		if err != nil {
			return nil, err
		}
		return s.fields(n, v, n.Field)
	case *parse.PipeNode:
		return s.pipe(dot, n)
	case *parse.IdentifierNode:
		return s.call(dot, n, nil, nil)
	}
	return nil, s.at(node, fmt.Errorf("cannot evaluate %s", node))
}

// number returns a constant as the type that Go would give it.
func (s *state) number(n *parse.NumberNode) (any, error) {
	hex := len(n.Text) > 2 && n.Text[0] == '0' && (n.Text[1] == 'x' || n.Text[1] == 'X') && !strings.ContainsAny(n.Text, "pP")
	switch {
	case n.IsComplex && !n.IsInt && !n.IsFloat:
		return n.Complex128, nil
	case n.IsFloat && !hex && n.Text[0] != '\'' && strings.ContainsAny(n.Text, ".eEpP"):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	}
	return nil, s.at(n, fmt.Errorf("%s is too large", n.Text))
}

// variable returns the innermost variable of a name; nil if there is none, which the parser refuses where it can.
func (s *state) variable(name string) *variable {
	for i := len(s.variables) - 1; i >= 0; i-- {
		if s.variables[i].name == name {
			return &s.variables[i]
		}
	}
	return nil
}

// fields returns the value of nested fields.
func (s *state) fields(n parse.Node, v any, names []string) (any, error) {
	for _, name := range names {
		if v == nil && s.strict {
			return nil, s.at(n, fmt.Errorf("can't evaluate field %s of a value that does not exist", name))
		}
		var err error
		if v, err = field(v, name); err != nil {
			return nil, s.at(n, err)
		}
	}
	return v, nil
}

// field returns a field of a struct or an entry of a map. Fields of a value that does not exist, and entries that a map does not have, do not exist.
func field(v any, name string) (any, error) {
	in := target(reflect.ValueOf(v))
	switch in.Kind() {
	case reflect.Invalid:
		if v != nil {
			return nil, fmt.Errorf("can't evaluate field %s of a nil pointer of type %T", name, v)
		}
		return nil, nil
	case reflect.Map:
		if in.Type().Key().Kind() == reflect.String {
			return value(in.MapIndex(reflect.ValueOf(name).Convert(in.Type().Key()))), nil
		}
	case reflect.Struct:
		if f, ok := in.Type().FieldByName(name); ok && f.IsExported() {
			found, err := in.FieldByIndexErr(f.Index)
			return value(found), err
		}
	}
	return nil, fmt.Errorf("can't evaluate field %s in type %T; methods cannot be called", name, v)
}

// target follows pointers and interfaces to a value. It is invalid behind nil.
func target(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// value returns a reflected value as it is; nil if there is none.
func value(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}

// truth reports whether a value is not empty, as if and with understand it.
func truth(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return r.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !r.IsZero()
	}
}

// maxSteps bounds the steps of one loop.
const maxSteps = 1 << 20

type step struct{ key, value any }

// iterate returns the steps of a range over a value.
func iterate(v any) (steps []step, err error) {
	in := target(reflect.ValueOf(v))
	switch {
	case !in.IsValid():
		return nil, nil
	case in.Kind() == reflect.Map:
		for _, key := range sortedKeys(in) {
			steps = append(steps, step{value(key), value(in.MapIndex(key))})
		}
		return steps, nil
	case in.Kind() == reflect.Slice || in.Kind() == reflect.Array:
		for i := range in.Len() {
			steps = append(steps, step{i, value(in.Index(i))})
		}
		return steps, nil
	case in.CanInt():
		if in.Int() > maxSteps {
			return nil, fmt.Errorf("a range over %d has more than %d steps", in.Int(), maxSteps)
		}
		for i := range in.Int() {
			n := reflect.New(in.Type()).Elem()
			n.SetInt(i)
			steps = append(steps, step{nil, n.Interface()})
		}
		return steps, nil
	}
	return nil, fmt.Errorf("range can't iterate over %v", v)
}
