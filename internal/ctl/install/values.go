package install

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"

	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/inject"
)

// File is a file of values.
type File struct {
	Name string
	Text []byte
}

// ReadValues reads values of files, and settings of the form NAME=VALUE over them. The last one counts; null removes a value.
func ReadValues(files []File, sets []string) (map[string]any, error) {
	values := map[string]any{}
	for _, f := range files {
		for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.Text))); ; {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			one := map[string]any{}
			if err = errors.Join(err, yaml.Unmarshal(document, &one)); err != nil {
				return nil, fmt.Errorf("%s has no values: %w; write YAML of the form NAME: VALUE", f.Name, err)
			}
			values = mergeMaps(values, one)
		}
	}
	for _, s := range sets {
		if err := strvals.ParseInto(s, values); err != nil {
			return nil, fmt.Errorf("--set %s: %w; write NAME.NAME=VALUE", s, err)
		}
	}
	return values, nil
}

// Over returns values with others laid over them; null removes a value.
func Over(below, above map[string]any) map[string]any {
	all := maps.Clone(below)
	if all == nil {
		all = map[string]any{}
	}
	for name, value := range above {
		former, isMap := all[name].(map[string]any)
		next, areMaps := value.(map[string]any)
		switch {
		case value == nil:
			delete(all, name)
		case isMap && areMaps:
			all[name] = Over(former, next)
		default:
			all[name] = value
		}
	}
	return all
}

// revisionOf returns the revision that values name; empty for the default one.
func revisionOf(values map[string]any) string {
	text, _ := values["revision"].(string)
	if pilot, ok := values["pilot"].(map[string]any); ok && text == "" {
		text, _ = pilot["revision"].(string)
	}
	if text == "default" {
		return ""
	}
	return text
}

// checkSettings checks the mesh configuration and the values of injection in rendered objects. Warnings are about settings that are ignored.
func checkSettings(objects []*unstructured.Unstructured) (warnings []string, err error) {
	mesh, problems := api.DecodeMesh("meshConfig", []byte(entryOf(objects, "mesh")))
	for _, p := range problems {
		warnings = append(warnings, p.String())
	}
	if mesh == nil {
		return nil, fmt.Errorf("the value meshConfig cannot be used: %v", problems)
	}
	values, err := inject.ParseValues([]byte(entryOf(objects, "values")))
	if err != nil {
		return nil, err
	}
	if _, err := inject.New(inject.Config{Mesh: mesh, Values: values, Revision: values.Revision}); err != nil {
		return nil, fmt.Errorf("injection cannot use the values: %w", err)
	}
	return warnings, nil
}

// entryOf returns an entry of the ConfigMap that has it.
func entryOf(objects []*unstructured.Unstructured, key string) string {
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		if found, ok, _ := unstructured.NestedString(o.Object, "data", key); ok {
			return found
		}
	}
	return ""
}

// Print returns objects as YAML documents.
func Print(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for n, o := range objects {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("printing %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if n > 0 {
			out.WriteString("---\n")
		}
		out.Write(document)
	}
	return out.Bytes(), nil
}
