package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/source/object"
)

func newConverter() *converter {
	return &converter{Converter: object.Converter{Texts: object.NewTexts(object.TextLimit)}, place: "cluster c1"}
}

// read reads an object of Kubernetes from YAML.
func read[T any](t testing.TB, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// TestNamespaces: a new label of a namespace does not make a new value.
func TestNamespaces(t *testing.T) {
	c := newConverter()
	labelled := func(value string) *namespace {
		m := &metav1.PartialObjectMetadata{}
		m.Labels = map[string]string{"topology.istio.io/network": "n1", "a": value}
		return c.namespace(m)
	}
	one, two := labelled("b"), labelled("c")
	if got := mergeNamespaces(one, two).(*namespace); got != two || got.value != one.value {
		t.Errorf("a new label makes a new value")
	}
}
