package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"dario.cat/mergo"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/run/template"
)

// The functions of Helm that the charts of this program use, with Helm's results: users may render the same charts with Helm. A test compares both.

// refusal is the reason that a template gives for an error.
type refusal struct{ error }

var errArguments = errors.New("wrong arguments")

// argument returns an argument of a type. One that does not exist is the zero value, as in text/template.
func argument[T any](args []any, n int) (v T, err error) {
	if n >= len(args) {
		return v, errArguments
	}
	v, ok := args[n].(T)
	if !ok && args[n] != nil {
		return v, fmt.Errorf("argument %d is a %T, and should be a %T", n+1, args[n], v)
	}
	return v, nil
}

func textAt(args []any, n int) (string, error) { return argument[string](args, n) }

// texts makes a function of texts.
func texts(want int, f func(args []string) any) template.Function {
	return func(args ...any) (any, error) {
		all := make([]string, want)
		for n := range all {
			var err error
			if all[n], err = textAt(args, n); err != nil {
				return nil, err
			}
		}
		return f(all), nil
	}
}

// functions returns the functions, except for include.
func functions() map[string]template.Function {
	return map[string]template.Function{
		"contains":   texts(2, func(a []string) any { return strings.Contains(a[1], a[0]) }),
		"replace":    texts(3, func(a []string) any { return strings.ReplaceAll(a[2], a[0], a[1]) }),
		"trimPrefix": texts(2, func(a []string) any { return strings.TrimPrefix(a[1], a[0]) }),
		"fail": func(args ...any) (any, error) {
			reason, err := textAt(args, 0)
			return nil, errors.Join(err, refusal{errors.New(reason)})
		},
		"default": func(args ...any) (any, error) {
			if len(args) == 0 {
				return nil, errArguments
			}
			if len(args) > 1 && !isEmpty(args[1]) {
				return args[1], nil
			}
			return args[0], nil
		},
		"ternary": func(args ...any) (any, error) {
			first, err := argument[bool](args, 2)
			switch {
			case err != nil:
				return nil, err
			case first:
				return args[0], nil
			}
			return args[1], nil
		},
		"list":               func(args ...any) (any, error) { return slices.Clone(args), nil },
		"has":                has,
		"join":               join,
		"dict":               dict,
		"set":                set,
		"hasKey":             hasKey,
		"omit":               omit,
		"deepCopy":           func(args ...any) (any, error) { v, err := argument[any](args, 0); return deepCopy(v), err },
		"merge":              merge(mergo.Merge),
		"mustMergeOverwrite": merge(mergo.MergeWithOverwrite),
		"quote":              quote,
		"toString":           func(args ...any) (any, error) { v, err := argument[any](args, 0); return text(v), err },
		"toJson":             encoded(json.Marshal),
		"toYaml":             encoded(yaml.Marshal),
		"fromJson": func(args ...any) (any, error) {
			from, err := textAt(args, 0)
			to := map[string]any{}
			return to, errors.Join(err, json.Unmarshal([]byte(from), &to))
		},
		"nindent":       nindent,
		"semverCompare": atLeast,
	}
}

// encoded makes a function of the encoding of a value.
func encoded(f func(any) ([]byte, error)) template.Function {
	return func(args ...any) (any, error) {
		v, err := argument[any](args, 0)
		if err != nil {
			return nil, err
		}
		data, err := f(v)
		return strings.TrimSuffix(string(data), "\n"), err
	}
}

// merge makes a function that merges maps into the first one.
func merge(f func(into, from any, o ...func(*mergo.Config)) error) template.Function {
	return func(args ...any) (any, error) {
		into, err := argument[map[string]any](args, 0)
		for n := 1; n < len(args) && err == nil; n++ {
			var from map[string]any
			if from, err = argument[map[string]any](args, n); err == nil {
				err = f(&into, from)
			}
		}
		return into, err
	}
}

func has(args ...any) (any, error) {
	if len(args) != 2 {
		return nil, errArguments
	}
	list, err := argument[[]any](args, 1)
	return slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, args[0]) }), err
}

func join(args ...any) (any, error) {
	by, err := textAt(args, 0)
	list, failed := argument[[]any](args, 1)
	var all []string
	for _, v := range list {
		if v != nil {
			all = append(all, text(v))
		}
	}
	return strings.Join(all, by), errors.Join(err, failed)
}

func dict(args ...any) (any, error) {
	all := map[string]any{}
	for n := 0; n+1 < len(args); n += 2 {
		all[text(args[n])] = args[n+1]
	}
	return all, nil
}

func set(args ...any) (any, error) {
	in, err := argument[map[string]any](args, 0)
	key, failed := textAt(args, 1)
	if err = errors.Join(err, failed); err != nil || in == nil || len(args) != 3 {
		return nil, errors.Join(errArguments, err)
	}
	in[key] = args[2]
	return in, nil
}

func hasKey(args ...any) (any, error) {
	in, err := argument[map[string]any](args, 0)
	key, failed := textAt(args, 1)
	_, ok := in[key]
	return ok, errors.Join(err, failed)
}

func omit(args ...any) (any, error) {
	from, err := argument[map[string]any](args, 0)
	left := map[string]any{}
	maps.Copy(left, from)
	for n := 1; n < len(args) && err == nil; n++ {
		var key string
		key, err = textAt(args, n)
		delete(left, key)
	}
	return left, err
}

func quote(args ...any) (any, error) {
	var all []string
	for _, v := range args {
		if v != nil {
			all = append(all, fmt.Sprintf("%q", text(v)))
		}
	}
	return strings.Join(all, " "), nil
}

func nindent(args ...any) (any, error) {
	spaces, err := argument[int](args, 0)
	lines, failed := textAt(args, 1)
	begin := "\n" + strings.Repeat(" ", spaces)
	return begin + strings.ReplaceAll(lines, "\n", begin), errors.Join(err, failed)
}

// atLeast is semverCompare for constraints of the form >=X.Y.Z-0, and versions of the form vX.Y.Z.
func atLeast(args ...any) (any, error) {
	least, err := textAt(args, 0)
	is, failed := textAt(args, 1)
	var want, have [3]int
	_, wrong := fmt.Sscanf(least, ">=%d.%d.%d-0", &want[0], &want[1], &want[2])
	_, unlike := fmt.Sscanf(is, "v%d.%d.%d", &have[0], &have[1], &have[2])
	return slices.Compare(have[:], want[:]) >= 0, errors.Join(err, failed, wrong, unlike)
}

// text returns a value as text.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

// isEmpty reports whether default replaces a value.
func isEmpty(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Map, reflect.Slice, reflect.String:
		return r.Len() == 0
	default:
		return r.IsZero()
	}
}

// deepCopy returns a copy of a value that shares no map and no list with it.
func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, one := range v {
			all[key] = deepCopy(one)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for n, one := range v {
			all[n] = deepCopy(one)
		}
		return all
	}
	return v
}

// coalesce returns the values of users over the values of a chart, as Helm does: null removes a value of the chart.
func coalesce(users, charts map[string]any) map[string]any {
	all, _ := deepCopy(users).(map[string]any)
	for key, below := range charts {
		is, set := all[key]
		over, isMap := is.(map[string]any)
		under, areMaps := below.(map[string]any)
		switch {
		case below == nil:
		case !set && areMaps:
			all[key] = coalesce(map[string]any{}, under)
		case !set:
			all[key] = deepCopy(below)
		case is == nil:
			delete(all, key)
		case isMap && areMaps:
			all[key] = coalesce(over, under)
		}
	}
	return all
}

// mergeMaps lays values over others. Unlike Over, it keeps null, which removes a value of the chart later.
func mergeMaps(below, above map[string]any) map[string]any {
	all := maps.Clone(below)
	for key, v := range above {
		former, isMap := all[key].(map[string]any)
		next, areMaps := v.(map[string]any)
		if isMap && areMaps {
			v = mergeMaps(former, next)
		}
		all[key] = v
	}
	return all
}
