package template

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"text/template/parse"
)

// call calls a function.
func (s *state) call(dot any, id *parse.IdentifierNode, args []parse.Node, last []any) (any, error) {
	if id.Ident == "and" || id.Ident == "or" {
		return s.decide(dot, id, args, last)
	}
	return s.apply(dot, id, s.functions[id.Ident], args, last)
}

// apply calls a function with the values of its arguments.
func (s *state) apply(dot any, n parse.Node, f Function, args []parse.Node, last []any) (any, error) {
	var values []any
	for _, a := range args {
		v, err := s.operand(dot, a)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	v, err := f(append(values, last...)...)
	if err != nil && !errors.As(err, new(located)) { // a template that it has rendered states its own line
		err = s.at(n, fmt.Errorf("%s: %w", n, err))
	}
	return v, err
}

// decide is and, or or: the first argument that decides, or the last. Arguments behind it are not evaluated.
func (s *state) decide(dot any, id *parse.IdentifierNode, args []parse.Node, last []any) (v any, err error) {
	if len(args)+len(last) == 0 {
		return nil, s.at(id, fmt.Errorf("%s: %w", id.Ident, errArguments))
	}
	for _, a := range args {
		if v, err = s.operand(dot, a); err != nil || truth(v) == (id.Ident == "or") {
			return v, err
		}
	}
	if len(last) > 0 {
		return last[0], nil
	}
	return v, nil
}

var errArguments = errors.New("wrong number of arguments")

// functions returns the functions that every template has.
func functions() map[string]Function {
	ordered := func(ok func(order int) bool) Function {
		return func(args ...any) (any, error) {
			if len(args) != 2 {
				return nil, errArguments
			}
			order, err := compare(args[0], args[1])
			return ok(order), err
		}
	}
	return map[string]Function{
		"and": nil, "or": nil, // call knows them
		"not": one(func(v any) (any, error) { return !truth(v), nil }),
		"len": one(length), "index": index, "eq": equal,
		"ne": func(args ...any) (any, error) {
			if len(args) != 2 {
				return nil, errArguments
			}
			same, err := equalTo(args[0], args[1])
			return !same, err
		},
		"lt": ordered(func(order int) bool { return order < 0 }), "le": ordered(func(order int) bool { return order <= 0 }),
		"gt": ordered(func(order int) bool { return order > 0 }), "ge": ordered(func(order int) bool { return order >= 0 }),
		"print":   func(args ...any) (any, error) { return fmt.Sprint(args...), nil },
		"println": func(args ...any) (any, error) { return fmt.Sprintln(args...), nil },
		"printf": func(args ...any) (any, error) {
			if len(args) == 0 {
				return nil, errArguments
			}
			format, ok := args[0].(string)
			if !ok {
				return nil, fmt.Errorf("the format %v is not text", args[0])
			}
			return fmt.Sprintf(format, args[1:]...), nil
		},
	}
}

// one is a function of one argument.
func one(f func(v any) (any, error)) Function {
	return func(args ...any) (any, error) {
		if len(args) != 1 {
			return nil, errArguments
		}
		return f(args[0])
	}
}

func length(v any) (any, error) {
	switch in := target(reflect.ValueOf(v)); in.Kind() {
	case reflect.String, reflect.Map, reflect.Slice, reflect.Array:
		return in.Len(), nil
	}
	return nil, fmt.Errorf("a value of type %T has no length", v)
}

// index returns an entry of nested maps and lists: index v 1 "a" is v[1]["a"].
func index(args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errArguments
	}
	v := args[0]
	for _, at := range args[1:] {
		in, key := target(reflect.ValueOf(v)), reflect.ValueOf(at)
		switch {
		case in.Kind() == reflect.Map && key.IsValid() && key.Type().AssignableTo(in.Type().Key()):
			found := in.MapIndex(key)
			if !found.IsValid() {
				found = reflect.Zero(in.Type().Elem()) // as Go's own index
			}
			v = value(found)
		case (in.Kind() == reflect.Slice || in.Kind() == reflect.Array || in.Kind() == reflect.String) && key.CanInt():
			if i := key.Int(); i < 0 || i >= int64(in.Len()) {
				return nil, fmt.Errorf("index out of range: %d of %d", i, in.Len())
			}
			v = value(in.Index(int(key.Int())))
		default:
			return nil, fmt.Errorf("can't index a value of type %T with one of type %T", v, at)
		}
	}
	return v, nil
}

// equal reports whether the first argument equals one of the others.
func equal(args ...any) (any, error) {
	if len(args) < 2 {
		return nil, errArguments
	}
	for _, other := range args[1:] {
		if same, err := equalTo(args[0], other); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

var errIncompatible = errors.New("incompatible types for comparison")

// equalTo compares two values of the same kind. Integers may have different types.
func equalTo(a, b any) (bool, error) {
	if order, err := compare(a, b); err == nil {
		return order == 0, nil
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case !x.IsValid() || !y.IsValid():
		return x.IsValid() == y.IsValid(), nil
	case !x.Comparable() || !y.Comparable():
		return false, fmt.Errorf("a value of type %T and one of type %T cannot be compared", a, b)
	case x.Type() != y.Type():
		return false, errIncompatible
	}
	return a == b, nil
}

// compare returns the order of two numbers or texts.
func compare(a, b any) (int, error) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	switch {
	case !x.IsValid() || !y.IsValid():
	case x.Kind() == reflect.String && y.Kind() == reflect.String:
		return cmp.Compare(x.String(), y.String()), nil
	case x.CanFloat() && y.CanFloat():
		return cmp.Compare(x.Float(), y.Float()), nil
	case x.CanInt() && y.CanInt():
		return cmp.Compare(x.Int(), y.Int()), nil
	case x.CanUint() && y.CanUint():
		return cmp.Compare(x.Uint(), y.Uint()), nil
	case x.CanInt() && y.CanUint():
		if x.Int() < 0 {
			return -1, nil
		}
		return cmp.Compare(uint64(x.Int()), y.Uint()), nil
	case x.CanUint() && y.CanInt():
		order, err := compare(b, a)
		return -order, err
	}
	return 0, errIncompatible
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		order, _ := compare(a.Interface(), b.Interface()) // keys without an order stay as they are
		return order
	})
	return keys
}
