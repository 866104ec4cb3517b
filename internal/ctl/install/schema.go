package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pilotmesh/pilot/internal/api/spelling"
)

// schema is a part of the schema of a chart's values.
type schema struct {
	Ref         string             `json:"$ref"`
	Description string             `json:"description"`
	Type        any                `json:"type"`
	Enum        []any              `json:"enum"`
	Properties  map[string]*schema `json:"properties"`
	// Unused is true for a value of Istio's chart that has no effect.
	Unused bool `json:"x-unused"`
}

// schemaOf reads the schema of a chart's values.
func schemaOf(c *chart) (*schema, error) {
	s := &schema{}
	if err := json.Unmarshal(c.schema, s); err != nil {
		return nil, fmt.Errorf("the schema of the chart %s: %w", c.name, err)
	}
	return s, nil
}

// checkValues returns the mistakes in the values of users: unknown names first, because Helm's check would say less about them.
func checkValues(c *chart, values map[string]any) error {
	root, err := schemaOf(c)
	if err != nil {
		return err
	}
	var unknown []error
	root.walk(root, "", values, func(at string, found *schema, parent *schema) {
		if found == nil {
			unknown = append(unknown, root.unknown(c.name, at, parent))
		}
	})
	if len(unknown) > 0 {
		return errors.Join(unknown...)
	}
	if err := validate(coalesce(values, c.values), c.schema); err != nil {
		return fmt.Errorf("the values of the chart %s cannot be used:\n%s", c.name, strings.Join(sorted(err), "\n"))
	}
	return nil
}

// validate checks values against a schema.
func validate(values map[string]any, schema []byte) error {
	const at = "file:///values.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // the schema refers to no other
	if err := compiler.AddResource(at, document); err != nil {
		return err
	}
	validator, err := compiler.Compile(at)
	if err == nil {
		err = validator.Validate(values)
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "jsonschema validation failed with '"+at+"#'\n"))
	}
	return nil
}

// sorted returns the lines of an error in order, because the validator goes through the values in the order of a map.
func sorted(err error) []string {
	return slices.Sorted(strings.SplitSeq(strings.TrimSpace(err.Error()), "\n"))
}

// walk calls visit for each value with its part of the schema, nil if the schema has none, and the part that it would belong to.
func (s *schema) walk(root *schema, at string, values map[string]any, visit func(at string, found, parent *schema)) {
	if s.Ref == "#" {
		s = root
	}
	if s.Properties == nil {
		return // any names
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		here := strings.TrimPrefix(at+"."+name, ".")
		found := s.Properties[name]
		visit(here, found, s)
		if below, ok := values[name].(map[string]any); ok && found != nil {
			found.walk(root, here, below, visit)
		}
	}
}

// unknown is the error about a value that the schema does not have.
func (s *schema) unknown(chart, at string, parent *schema) error {
	name := at[strings.LastIndex(at, ".")+1:]
	text := fmt.Sprintf("the chart %s has no value %s", chart, at)
	if near := spelling.Closest(name, slices.Sorted(maps.Keys(parent.Properties))); near != "" {
		return fmt.Errorf("%s; did you mean %s?", text, strings.TrimSuffix(at, name)+near)
	}
	if places := s.places("", name); len(places) == 1 {
		return fmt.Errorf("%s; did you mean %s?", text, places[0])
	}
	return fmt.Errorf("%s; remove it (doc/values.md lists all values)", text)
}

// places returns the paths of all values with a name.
func (s *schema) places(at, name string) (found []string) {
	for _, one := range slices.Sorted(maps.Keys(s.Properties)) {
		here := strings.TrimPrefix(at+"."+one, ".")
		if one == name {
			found = append(found, here)
		}
		found = append(found, s.Properties[one].places(here, name)...)
	}
	return found
}

// ineffective returns the values that a chart accepts because Istio's chart has them, and why each has no effect here.
func ineffective(name string, values map[string]any) ([]string, error) {
	c, err := load(name)
	if err != nil {
		return nil, err
	}
	root, err := schemaOf(c)
	if err != nil {
		return nil, err
	}
	var list []string
	root.walk(root, "", values, func(at string, found, _ *schema) {
		if found != nil && found.Unused {
			_, why, _ := strings.Cut(found.Description, "files work. ")
			list = append(list, fmt.Sprintf("the value %s has no effect: %s", at, why))
		}
	})
	return list, nil
}
