package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// change is one way to touch a constraint of a place.
type change struct {
	constraint string
	apply      func(any) any
	breaks     bool // an API server must refuse the result; otherwise it decides
}

// changes lists the ways to touch each constraint of a place. A constraint of an unknown sort fails the test.
func (p place) changes(t *testing.T, rules *ruleBreakers, sample func(place) (any, bool)) []change {
	t.Helper()
	s := p.schema
	out := []change{{"null", constant(nil), false}}
	out = append(out, typeChanges(s)...)
	out = append(out, p.sizeChanges(sample)...)
	for _, name := range s.Required {
		out = append(out, change{"required " + name, with(name, absent{}), true})
	}
	if len(s.Enum) > 0 {
		out = append(out, change{"enum", constant("NONE_OF_THEM"), true})
		for i := range s.Enum {
			var v any
			if err := json.Unmarshal(s.Enum[i].Raw, &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, change{fmt.Sprintf("enum %v", v), constant(v), false})
		}
	}
	if s.Type == "object" && len(s.Properties) > 0 {
		out = append(out, change{"unknown field", with("zzUnknown", int64(1)), false})
	}
	if s.XListType != nil && *s.XListType == "map" {
		out = append(out, change{"list-map-keys", func(v any) any { return append(slices.Clone(v.([]any)), v.([]any)[0]) }, true})
	}
	out = append(out, p.choices(sample)...)
	for _, rule := range s.XValidations {
		bad, good := rules.of(t, rule.Rule)
		for i, v := range bad {
			out = append(out, change{fmt.Sprintf("rule %q broken %d", rule.Message, i), v, true})
		}
		for i, v := range good {
			out = append(out, change{fmt.Sprintf("rule %q kept %d", rule.Message, i), v, false})
		}
	}
	checkKeywords(t, p)
	return out
}

func constant(v any) func(any) any { return func(any) any { return v } }

// with sets a field of an object, or removes it.
func with(name string, v any) func(any) any {
	return func(object any) any {
		out := maps.Clone(object.(map[string]any))
		out[name] = v
		if v == (absent{}) {
			delete(out, name)
		}
		return out
	}
}

func typeChanges(s *apiextensionsv1.JSONSchemaProps) []change {
	var out []change
	if s.XIntOrString {
		return nil
	}
	for name, v := range map[string]any{
		"string": "text", "integer": int64(1), "number": 1.5, "boolean": true, "array": []any{}, "object": map[string]any{},
	} {
		if name != s.Type && (name != "integer" || s.Type != "number") {
			out = append(out, change{"type " + name, constant(v), s.Format != "byte"}) // a list passes for bytes
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.constraint, b.constraint) })
	switch s.Format {
	case "int32":
		out = append(out, change{"format above", constant(int64(math.MaxInt32 + 1)), false}, change{"format negative", constant(int64(-1)), false})
	case "byte":
		out = append(out, change{"format", constant("%%%"), false}, change{"format url", constant("-_-_"), false},
			change{"format unpadded", constant("YQ"), false})
	}
	return out
}

// sizeChanges are one step beyond each bound, and at it.
func (p place) sizeChanges(sample func(place) (any, bool)) []change {
	s := p.schema
	var out []change
	bound := func(name string, limit, outside *int64, build func(int64) func(any) any) {
		if limit != nil {
			out = append(out, change{name, build(*outside), true}, change{name + " at", build(*limit), false})
		}
	}
	below := func(n *int64) *int64 {
		if n == nil {
			return nil
		}
		return new(*n - 1)
	}
	above := func(n *int64) *int64 {
		if n == nil {
			return nil
		}
		return new(*n + 1)
	}
	whole := func(f *float64) *int64 {
		if f == nil {
			return nil
		}
		return new(int64(*f))
	}
	number := func(n int64) func(any) any { return constant(n) }
	low, high := whole(s.Minimum), whole(s.Maximum)
	bound("minimum", low, below(low), number)
	bound("maximum", high, above(high), number)
	if s.Pattern != "" {
		out = append(out, change{"pattern", constant("?"), true}) // no pattern of the schemas takes it
	}
	bound("minLength", s.MinLength, below(s.MinLength), ofLength)
	bound("maxLength", s.MaxLength, above(s.MaxLength), ofLength)
	items := func(n int64) func(any) any {
		one, _ := sample(p.child(item, s.Items.Schema))
		return ofItems(n, one)
	}
	bound("minItems", s.MinItems, below(s.MinItems), items)
	bound("maxItems", s.MaxItems, above(s.MaxItems), items)
	bound("minProperties", s.MinProperties, below(s.MinProperties), ofEntries)
	bound("maxProperties", s.MaxProperties, above(s.MaxProperties), ofEntries)
	return out
}

// ofLength is a host name of so many characters.
func ofLength(n int64) func(any) any {
	const label = 50
	text := []byte(strings.Repeat("a", int(n)))
	for i := label; i < len(text)-1; i += label + 1 {
		text[i] = '.'
	}
	return constant(string(text))
}

// ofItems is a list of so many different items like one.
func ofItems(n int64, one any) func(any) any {
	out := make([]any, n)
	for i := range out {
		out[i] = distinct(one, i)
	}
	return constant(out)
}

// distinct is an item that differs from others in the parts that must differ.
func distinct(v any, i int) any {
	switch v := v.(type) {
	case string:
		if strings.Count(v, ".") == 3 && strings.Trim(v, "0123456789.") == "" {
			return fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		}
		return fmt.Sprintf("n%d.%s", i, v)
	case map[string]any:
		out := maps.Clone(v)
		for name, old := range v {
			switch name {
			case "name":
				out[name] = fmt.Sprintf("n%d", i)
			case "number":
				out[name] = int64(i + 1)
			case "port":
				out[name] = distinct(old, i)
			}
		}
		return out
	}
	return v
}

// ofEntries is a map of so many entries.
func ofEntries(n int64) func(any) any {
	return func(v any) any {
		var value any
		for _, value = range v.(map[string]any) {
			break
		}
		out := map[string]any{}
		for i := range n {
			out[fmt.Sprintf("n%d", i)] = value
		}
		return out
	}
}

// choices are two alternatives at once where one is allowed, and none of them.
func (p place) choices(sample func(place) (any, bool)) []change {
	groups := [][]apiextensionsv1.JSONSchemaProps{p.schema.OneOf}
	for _, all := range p.schema.AllOf {
		groups = append(groups, all.OneOf)
	}
	var out []change
	for _, group := range groups {
		var names []string
		for _, alternative := range group {
			names = append(names, alternative.Required...)
		}
		remove := func(v any) map[string]any {
			object := maps.Clone(v.(map[string]any))
			for _, name := range names {
				delete(object, name)
			}
			return object
		}
		if len(names) > 0 {
			out = append(out, change{"none of " + strings.Join(names, ", "), func(v any) any { return remove(v) }, false})
		}
		for i, a := range names {
			for _, b := range names[:i] {
				out = append(out, change{"one of " + b + " and " + a, func(v any) any {
					object := remove(v)
					for _, name := range []string{a, b} {
						schema := p.schema.Properties[name]
						value, ok := sample(p.child(step(name), &schema))
						if !ok { // a field that package api refuses
							value = "1s"
						}
						object[name] = value
					}
					return object
				}, true})
			}
		}
	}
	return out
}

// checkKeywords fails the test if a schema says something that no change is made for.
func checkKeywords(t *testing.T, p place) {
	t.Helper()
	data, err := json.Marshal(p.schema)
	if err != nil {
		t.Fatal(err)
	}
	var keywords map[string]any
	if err := json.Unmarshal(data, &keywords); err != nil {
		t.Fatal(err)
	}
	for keyword := range keywords {
		switch keyword {
		case "description", "properties", "items", "additionalProperties", "default", "nullable", "x-kubernetes-list-map-keys",
			"type", "format", "required", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
			"minProperties", "maxProperties", "pattern", "oneOf", "allOf", "x-kubernetes-validations", "x-kubernetes-list-type":
		default:
			t.Errorf("%v: the schema says %s, of which this test knows nothing; teach it", p, keyword)
		}
	}
}

// ruleBreakers are values that break each CEL rule, and values that keep it: a rule cannot be broken by machine.
type ruleBreakers struct {
	rules map[string]*breakers
}

type breakers struct {
	// Bad and Good replace the value that the rule is about. Fields set to null in Set are removed from it.
	Bad, Good       []any
	BadSet, GoodSet []map[string]any
	used            bool
}

func readRules(t *testing.T) *ruleBreakers {
	t.Helper()
	data, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := &ruleBreakers{}
	if err := yaml.UnmarshalStrict(data, &r.rules); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ruleBreakers) of(t *testing.T, rule string) (bad, good []func(any) any) {
	t.Helper()
	b := r.rules[rule]
	if b == nil {
		t.Errorf("testdata/rules.yaml does not say what breaks this rule: %s", rule)
		return nil, nil
	}
	b.used = true
	list := func(values []any, sets []map[string]any) (out []func(any) any) {
		for _, v := range values {
			out = append(out, constant(numbers(v)))
		}
		for _, set := range sets {
			out = append(out, func(v any) any {
				for _, name := range slices.Sorted(maps.Keys(set)) {
					if set[name] == nil {
						v = with(name, absent{})(v)
					} else {
						v = with(name, numbers(set[name]))(v)
					}
				}
				return v
			})
		}
		return out
	}
	return list(b.Bad, b.BadSet), list(b.Good, b.GoodSet)
}
