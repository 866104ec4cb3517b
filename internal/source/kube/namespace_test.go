package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api/kube"
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

// TestNamespaces: another annotation or status of a namespace makes no new value, and another label does.
func TestNamespaces(t *testing.T) {
	c := newConverter()
	namespace := func(label, annotation string) *kube.Namespace {
		return c.Namespace(&metav1.ObjectMeta{Labels: map[string]string{"a": label}, Annotations: map[string]string{"b": annotation}})
	}
	one := namespace("1", "1")
	if got := mergeValues(one, namespace("1", "2")).(*kube.Namespace); got != one {
		t.Errorf("another annotation makes a new value")
	}
	if got := mergeValues(one, namespace("2", "1")).(*kube.Namespace); got == one {
		t.Errorf("another label makes no new value")
	}
}
