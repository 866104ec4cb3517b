package inject

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/inject/owner"
)

// TestDecide: the decision by labels of namespace and pod, revision, selectors and policy.
func TestDecide(t *testing.T) {
	label := func(pairs string) map[string]string {
		set := map[string]string{}
		for _, pair := range items(pairs) {
			name, value, _ := strings.Cut(pair, "=")
			set[name] = value
		}
		return set
	}
	const inj, rev = injectName, revisionName
	for _, c := range []struct {
		settings, namespace, pod string
		inject                   bool
		reason                   string
	}{
		{"{}", "", "", false, "label the namespace istio-injection=enabled"},
		{"{}", "istio-injection=enabled", "", true, "autoInject is enabled"},
		{"{}", "istio-injection=enabled", inj + "=false", false, "is false"},
		{"{}", "istio-injection=disabled", inj + "=true", false, "is disabled"},
		{"{}", "", inj + "=true", true, "label " + inj},
		{"{}", "istio.io/rev=default", "", true, "autoInject"},
		{"{}", "", "istio.io/rev=default", true, "autoInject"},
		{"{}", "istio.io/rev=canary", "", false, "has the revision canary"},
		{"{}", "istio.io/rev=default,istio-injection=enabled", "", true, "autoInject"},
		{"{revision: canary}", "istio.io/rev=canary", "", true, "autoInject"},
		{"{revision: canary}", "istio.io/rev=canary", inj + "=false", false, "is false"},
		{"{revision: canary}", "", rev + "=canary", true, "autoInject"},
		{"{revision: canary}", "istio-injection=enabled", rev + "=canary", false, "goes before revisions"},
		{"{revision: canary}", "", inj + "=true", false, "istio.io/rev=canary"},
		{"{values: {sidecarInjectorWebhook: {enableNamespacesByDefault: true}}}", "", "", true, "autoInject"},
		{"{values: {sidecarInjectorWebhook: {enableNamespacesByDefault: true}}}", "kubernetes.io/metadata.name=kube-public", "", false, "no entry"},
		{"{values: {global: {proxy: {autoInject: disabled}}}}", "istio-injection=enabled", "", false, "autoInject is disabled"},
		{"{values: {global: {proxy: {autoInject: disabled}}}}", "istio-injection=enabled", inj + "=true", true, "label"},
		{"{values: {sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {job: x}}]}}}", "istio-injection=enabled", "job=x", false, "neverInjectSelector[0]"},
		{"{values: {sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {job: x}}]}}}", "istio-injection=enabled", "job=x," + inj + "=true", true, "label"},
		{"{values: {sidecarInjectorWebhook: {neverInjectSelector: [{}]}}}", "istio-injection=enabled", "", true, "autoInject"},
		{"{values: {sidecarInjectorWebhook: {alwaysInjectSelector: [{matchExpressions: [{key: job, operator: Exists}]}]}, global: {proxy: {autoInject: disabled}}}}",
			"istio-injection=enabled", "job=x", true, "alwaysInjectSelector[0]"},
	} {
		i, _ := prepared(t, c.settings)
		p := pod(nil)
		p.Labels = label(c.pod)
		d := i.Decide(p, &Namespace{Name: "shop", Labels: label(c.namespace)})
		if d.Inject != c.inject || !strings.Contains(d.Reason, c.reason) || len(d.Steps) == 0 {
			t.Errorf("%s, namespace %s, pod %s: %v %s", c.settings, c.namespace, c.pod, d.Inject, d.Reason)
		}
	}
}

// TestHint: the reason of a pod that no webhook selects names no label that would not help.
func TestHint(t *testing.T) {
	i, _ := prepared(t, "{}")
	declined, host, system := pod(nil), pod(nil), pod(nil)
	declined.Annotations = map[string]string{injectName: "false"}
	host.Spec.HostNetwork = true
	for _, c := range []struct {
		pod               *corev1.Pod
		namespace, wanted string
	}{
		{declined, "shop", "its annotation " + injectName + " is false"},
		{host, "shop", "in the network of its host"},
		{system, "kube-system", "the namespace kube-system are never injected"},
	} {
		d := i.Decide(c.pod, &Namespace{Name: c.namespace})
		if d.Inject || !strings.Contains(d.Reason, c.wanted) || strings.Contains(d.Reason, "label the namespace") {
			t.Errorf("%s: %v %s", c.wanted, d.Inject, d.Reason)
		}
	}
}

// TestWrongSettings: values that cannot be used are named.
func TestWrongSettings(t *testing.T) {
	for text, want := range map[string]string{
		"{global: {proxy: {autoInject: perhaps}}}":       "autoInject",
		"{global: {proxy: {includeInboundPorts: http}}}": "is not the number",
		"{global: [":                      "no YAML",
		"{global: {imagePullSecrets: 7}}": "imagePullSecrets",
		"{sidecarInjectorWebhook: {defaultTemplates: [own]}}":                                        "no template",
		"{sidecarInjectorWebhook: {neverInjectSelector: [{matchExpressions: [{operator: Maybe}]}]}}": "neverInjectSelector[0]",
	} {
		v, err := ParseValues([]byte(text))
		if err == nil {
			_, err = New(Config{Values: v})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestOwner: the workload of a pod follows from the names that controllers give.
func TestOwner(t *testing.T) {
	yes := true
	for _, c := range []struct{ kind, name, labels, want string }{
		{"ReplicaSet", "web-6d4b", "pod-template-hash=6d4b", "kubernetes://apis/apps/v1/namespaces/shop/deployments/web"},
		{"ReplicaSet", "web-6d4b", "", "kubernetes://apis/apps/v1/namespaces/shop/replicasets/web-6d4b"},
		{"ReplicaSet", "web-77", "rollouts-pod-template-hash=77", "kubernetes://apis/v1alpha1/namespaces/shop/rollouts/web"},
		{"ReplicationController", "web-3", "deploymentconfig=web", "kubernetes://apis/apps/v1/namespaces/shop/deploymentconfigs/web"},
		{"Job", "night-29391020", "", "kubernetes://apis/apps/v1/namespaces/shop/cronjobs/night"},
		{"Job", "night-1", "", "kubernetes://apis/apps/v1/namespaces/shop/jobs/night-1"},
		{"StatefulSet", "db", "", "kubernetes://apis/apps/v1/namespaces/shop/statefulsets/db"},
	} {
		p := pod(nil)
		p.GenerateName = c.name + "-"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: c.kind, Name: c.name, Controller: &yes}}
		if name, value, ok := strings.Cut(c.labels, "="); ok {
			p.Labels[name] = value
		}
		if got := owner.Of(p).ID(); got != c.want {
			t.Errorf("%s %s: %s", c.kind, c.name, got)
		}
	}
	if got := owner.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).ID(); got != "kubernetes://apis/v1/namespaces/default/pods/a" {
		t.Error(got)
	}
}

// TestNativeSidecars: automatically, all nodes must be new enough.
func TestNativeSidecars(t *testing.T) {
	for _, c := range []struct {
		setting, versions string
		want, fails       bool
	}{
		{"true", "v1.20.0", true, false}, {"false", "v1.40.0", false, false}, {"auto", "", false, false}, {"", "v1.33.0,v1.36.2+k3s1", true, false},
		{"", "v1.33.0,v1.32.9", false, false}, {"auto", "odd", false, false}, {"auto", "v2.0.0", true, false}, {"yes", "", false, true},
	} {
		got, err := NativeSidecars(c.setting, items(c.versions))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
}

// TestManifest: the selectors by which pilotctl explain injection decides are the selectors that API servers get.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../manifests/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var c struct {
		Webhooks []struct {
			Name              string               `json:"name"`
			NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
			ObjectSelector    metav1.LabelSelector `json:"objectSelector"`
		} `json:"webhooks"`
	}
	if err := yaml.Unmarshal([]byte(first), &c); err != nil {
		t.Fatal(err)
	}
	all := func(s metav1.LabelSelector) map[string]bool {
		set := map[string]bool{}
		for _, r := range s.MatchExpressions {
			set[fmt.Sprint(r)] = true
		}
		return set
	}
	want := webhookSelectors("", false)
	for n, s := range want {
		if len(c.Webhooks) != len(want) || c.Webhooks[n].Name != s.Name || !maps.Equal(all(c.Webhooks[n].NamespaceSelector), all(s.Namespace)) ||
			!maps.Equal(all(c.Webhooks[n].ObjectSelector), all(s.Object)) {
			t.Errorf("%s differs", s.Name)
		}
	}
}
