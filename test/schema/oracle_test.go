package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/pilotmesh/pilot/internal/api"
)

// oracle judges objects of one kind as an API server does when they are created.
type oracle struct {
	kind       string
	schema     *apiextensionsv1.JSONSchemaProps
	structural *structural.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// kinds are the kinds that the product acts on.
var kinds = []string{"AuthorizationPolicy", "DestinationRule", "PeerAuthentication", "RequestAuthentication", "ServiceEntry", "Sidecar", "VirtualService", "WorkloadEntry", "WorkloadGroup"}

// oracles reads the CRDs that the API module ships.
func oracles(t *testing.T) map[string]*oracle {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatalf("find the API module: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*oracle{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 1<<16)
	for {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := documents.Decode(&crd); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Group == "networking.istio.io" || crd.Spec.Group == "security.istio.io" {
			found[crd.Spec.Names.Kind] = nil
			for _, kind := range kinds {
				if crd.Spec.Names.Kind == kind {
					found[kind] = newOracle(t, &crd)
				}
			}
		}
	}
	for _, kind := range kinds {
		if found[kind] == nil {
			t.Fatalf("the API module has no schema of %s", kind)
		}
	}
	return found
}

func newOracle(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *oracle {
	t.Helper()
	o := &oracle{kind: crd.Spec.Names.Kind}
	for _, version := range crd.Spec.Versions {
		if version.Name != "v1" {
			continue
		}
		o.schema = version.Schema.OpenAPIV3Schema
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(o.schema, &internal, nil); err != nil {
			t.Fatal(err)
		}
		var err error
		if o.structural, err = structural.NewStructural(&internal); err != nil {
			t.Fatal(err)
		}
		if o.validator, _, err = validation.NewSchemaValidator(&internal); err != nil {
			t.Fatal(err)
		}
		o.rules = cel.NewValidator(o.structural, true, celconfig.PerCallLimit)
	}
	if o.rules == nil {
		t.Fatalf("%s has no version v1", o.kind)
	}
	return o
}

// judge returns why an API server refuses an object. It does what the server does, in its order: the status of a new
// object is dropped, unknown fields are pruned, nulls that are not nullable are dropped, and the rest is validated.
func (o *oracle) judge(t *testing.T, object map[string]any) field.ErrorList {
	object = runtime.DeepCopyJSON(object)
	delete(object, "status")
	pruning.Prune(object, o.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, o.structural)
	defaulting.Default(object, o.structural)
	found := validation.ValidateCustomResource(nil, object, o.validator)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, o.structural, object)...)
	broken, _ := o.rules.Validate(t.Context(), nil, o.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(found, broken...)
}

// analyze returns why the product refuses an object.
func analyze(t *testing.T, object map[string]any) (errors []api.Problem) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	documents := api.Decode("document.json", data)
	if len(documents) != 1 {
		t.Fatalf("%d documents in %s", len(documents), data)
	}
	documents[0].Check()
	for _, p := range documents[0].Problems {
		if p.Severity == api.Error {
			errors = append(errors, p)
		}
	}
	if (documents[0].Object == nil) != (len(errors) > 0) {
		t.Fatalf("the object is %v with %v", documents[0].Object, documents[0].Problems)
	}
	return errors
}

// bases reads the documents that are broken in one place at a time, by kind.
func bases(t *testing.T) map[string][]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/bases/*.yaml")
	if err != nil || len(files) != len(kinds) {
		t.Fatalf("found %d files of base documents, want one for each of %v (%v)", len(files), kinds, err)
	}
	out := map[string][]map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimSuffix(filepath.Base(file), ".yaml")
		documents := yaml.NewYAMLToJSONDecoder(bytes.NewReader(data))
		for {
			var spec map[string]any
			if err := documents.Decode(&spec); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object := maps.Clone(map[string]any{
				"apiVersion": groupOf(t, kind) + "/v1", "kind": kind,
				"metadata": map[string]any{"name": "base", "namespace": "team"}, "spec": any(spec),
			})
			out[kind] = append(out[kind], numbers(object).(map[string]any))
		}
	}
	return out
}

// numbers gives JSON's numbers the types that an API server's decoder gives them: whole ones are int64.
func numbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// groupOf is the API group of a kind.
func groupOf(t *testing.T, kind string) string {
	t.Helper()
	k, ok := api.FindKind(kind)
	if !ok {
		t.Fatalf("the product does not act on %s", kind)
	}
	return k.Group()
}
