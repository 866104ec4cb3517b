package tags

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/ctl/install"
)

// TestChooses: which labels of a namespace choose which tag.
func TestChooses(t *testing.T) {
	for _, c := range []struct {
		labels  string
		tag     string
		chooses bool
	}{
		{"istio.io/rev=prod", "prod", true},
		{"istio.io/rev=prod", "canary", false},
		{"", "prod", false},
		{"", "default", false},
		{"istio-injection=enabled", "default", true},
		{"istio-injection=disabled", "default", false},
		{"istio.io/rev=default", "default", true},
		{"istio-injection=enabled istio.io/rev=prod", "prod", false},
		{"istio-injection=enabled istio.io/rev=prod", "default", true},
		{"istio-injection=disabled istio.io/rev=prod", "prod", false},
	} {
		l := map[string]string{}
		for one := range strings.FieldsSeq(c.labels) {
			key, value, _ := strings.Cut(one, "=")
			l[key] = value
		}
		if is := chooses(l, c.tag); is != c.chooses {
			t.Errorf("%q chooses %s: %t", c.labels, c.tag, is)
		}
	}
}

// TestCheck: the mistakes in a command line.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		change Change
		want   string
	}{
		{Change{Tag: "prod", Revision: "1-2"}, ""},
		{Change{Tag: "default", Revision: "1-2", AllNamespaces: true}, ""},
		{Change{Tag: "Prod", Revision: "1-2"}, "lower-case"},
		{Change{Tag: strings.Repeat("p", 51), Revision: "1-2"}, "50 characters"},
		{Change{Tag: "prod"}, "--revision"},
		{Change{Tag: "prod", Revision: "prod"}, "which counts already"},
		{Change{Tag: "prod", Revision: "1-2", AllNamespaces: true}, "--auto-inject-namespaces"},
	} {
		err := c.change.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.change, err, c.want)
		}
	}
}

// rendered returns the objects of a tag of the revision 1-2 as the chart has them.
func rendered(t *testing.T, tag string) map[string]*unstructured.Unstructured {
	t.Helper()
	all, err := install.Render(install.ControlPlane, install.Release{Namespace: "mesh"}, map[string]any{"revision": "1-2", "revisionTags": []any{tag}})
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		if o.GetLabels()[install.TagLabel] == tag {
			made[o.GetKind()] = o
		}
	}
	return made
}

// TestAim: the webhooks of a tag and of its revision call the same service, and validation another path of the same service.
func TestAim(t *testing.T) {
	made := rendered(t, "default")
	if len(made) != 4 {
		t.Fatalf("the tag has the kinds %v", made)
	}
	client := map[string]any{"caBundle": "cm9vdHM=", "service": map[string]any{"name": "istiod-x", "namespace": "other", "path": "/inject/cluster/east", "port": int64(8443)}}
	for kind, path := range map[string]string{"MutatingWebhookConfiguration": "/inject/cluster/east", "ValidatingWebhookConfiguration": "/validate"} {
		o := made[kind]
		aim(o, client)
		list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, one := range list {
			at, _ := one.(map[string]any)["clientConfig"].(map[string]any)
			service, _ := at["service"].(map[string]any)
			if service["name"] != "istiod-x" || service["namespace"] != "other" || service["path"] != path || at["caBundle"] != "cm9vdHM=" {
				t.Errorf("%s calls %v", kind, at)
			}
		}
	}
	if service, _ := client["service"].(map[string]any); service["path"] != "/inject/cluster/east" {
		t.Error("the webhooks of the revision have changed")
	}
}

// TestIdle: idle webhooks select nothing, which can be taken back exactly, and counts once.
func TestIdle(t *testing.T) {
	o := rendered(t, "default")["MutatingWebhookConfiguration"]
	before, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	if !install.Idle(o, true) || install.Idle(o, true) {
		t.Error("webhooks become idle once")
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, one := range list {
		found := false
		expressions, _, _ := unstructured.NestedSlice(one.(map[string]any), "namespaceSelector", "matchExpressions")
		for _, e := range expressions {
			found = found || e.(map[string]any)["key"] == "istio.io/deactivated"
		}
		if !found {
			t.Errorf("a webhook is not idle: %v", one)
		}
	}
	if !install.Idle(o, false) || install.Idle(o, false) {
		t.Error("webhooks become active once")
	}
	if after, err := yaml.Marshal(o.Object); err != nil || string(after) != string(before) {
		t.Errorf("the webhooks are not as before: %v\n%s", err, after)
	}
}

// TestReady: an EndpointSlice answers if one of its endpoints is ready, or does not say.
func TestReady(t *testing.T) {
	for text, want := range map[string]bool{
		`{endpoints: [{conditions: {ready: false}}, {conditions: {ready: true}}]}`: true,
		`{endpoints: [{addresses: [10.0.0.1]}]}`:                                   true,
		`{endpoints: [{conditions: {ready: false}}]}`:                              false,
		`{endpoints: []}`: false,
		`{}`:              false,
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if is := ready(o); is != want {
			t.Errorf("%s is ready: %t", text, is)
		}
	}
}
