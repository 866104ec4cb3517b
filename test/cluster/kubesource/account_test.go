package kubesource

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
)

// TestAccountSuffices checks that nothing that the source reads is refused to its account, with all of Istio's kinds defined.
func TestAccountSuffices(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: istio}, data: {mesh: 'trustDomain: td1'}}")
	remote := make(chan kubesource.Remote, 10)
	s := p.start(kubesource.Options{
		Configuration: true, MeshConfigMap: true, NetworksConfigMap: true, Remote: func(r kubesource.Remote) { remote <- r },
	})
	if r := <-remote; r.Mesh.GetTrustDomain() != "td1" {
		t.Errorf("remote clusters get their settings before the mesh configuration is known: %v", r)
	}
	if s.trust() != "td1" {
		t.Errorf("the mesh configuration is not read: %q", s.trust())
	}
	if s.now(s.problem("may not")) {
		t.Errorf("something is refused: %v", s.problems)
	}
}

// writes are the verbs that write and that the account of the control plane has, by resource, except the statuses of Istio's objects and questions
// about itself that every account may ask. A resource with a name is one object of it.
var writes = map[string]string{
	"workloadentries":               "create delete update", // of proxies that ask for one
	"leases":                        "create",
	"leases/pilot-discovery-leader": "update",
	"configmaps":                    "create",
	"configmaps/istio-ca-root-cert": "update",
	"configmaps/istio-ca-crl":       "update",
	"configmaps/pilot-policies-0":   "update", // the last good versions of access policies, in its own namespace only
	"configmaps/pilot-policies-1":   "update",
	"configmaps/pilot-policies-2":   "update",
	"configmaps/pilot-policies-3":   "update",
	"configmaps/pilot-bundles":      "update", // the last good roots of SPIFFE bundles, in its own namespace only
	"secrets":                       "create", // in its own namespace only
	"secrets/istio-ca-secret":       "update",
	// The roots by which API servers check the webhooks, in the two configurations of webhooks of the control plane. The name of one has its
	// namespace.
	"mutatingwebhookconfigurations/istio-sidecar-injector":   "patch",
	"mutatingwebhookconfigurations/istio-istio-system":       "patch",
	"validatingwebhookconfigurations/istio-sidecar-injector": "patch",
	"validatingwebhookconfigurations/istio-istio-system":     "patch",
	"tokenreviews":         "create", // which is a question, too
	"subjectaccessreviews": "create", // and so is this
}

// TestAccountWritesLittle checks that the control plane's account may write only the listed resources, and reads no more than it needs.
func TestAccountWritesLittle(t *testing.T) {
	p := on(t)
	client, err := kubernetes.NewForConfig(p.account())
	p.must(err)
	for _, namespace := range []string{p.namespace, meta.NamespaceDefault} {
		review := &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		review, err = client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, meta.CreateOptions{})
		p.must(err)
		got := writable(review.Status.ResourceRules)
		want := map[string]string{}
		for resource, verbs := range writes {
			want[strings.ReplaceAll(resource, "istio-istio-system", "istio-"+p.namespace)] = verbs
		}
		if namespace != p.namespace {
			maps.DeleteFunc(want, func(resource, _ string) bool {
				return strings.HasPrefix(resource, "leases") || strings.HasPrefix(resource, "secrets") || strings.HasPrefix(resource, "configmaps/pilot-")
			})
		}
		if !maps.Equal(got, want) {
			t.Errorf("in %s it may write %v, want %v", namespace, got, want)
		}
		if !slices.ContainsFunc(review.Status.ResourceRules, func(r authorization.ResourceRule) bool { return slices.Contains(r.Resources, "endpointslices") }) {
			t.Errorf("in %s it may not read endpoint slices: %+v", namespace, review.Status)
		}
	}
	others := []core.ConfigMap{{ObjectMeta: meta.ObjectMeta{Name: "istio"}}, {ObjectMeta: meta.ObjectMeta{Name: "mine"}}}
	for _, o := range others {
		if _, err := client.CoreV1().ConfigMaps(p.namespace).Update(t.Context(), &o, meta.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("changing ConfigMap %s: %v, want that it is forbidden", o.Name, err)
		}
	}
	_, err = client.CoordinationV1().Leases(p.namespace).Get(t.Context(), "of-others", meta.GetOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("reading a lease of others: %v, want that it is forbidden", err)
	}
	if _, err := client.CoreV1().Secrets(meta.NamespaceDefault).List(t.Context(), meta.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets of another namespace: %v, want that it is forbidden", err)
	}
	// Of ConfigMaps it reads its own only.
	if _, err := client.CoreV1().ConfigMaps(p.namespace).List(t.Context(), meta.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing all ConfigMaps: %v, want that it is forbidden", err)
	}
}

// writable returns the verbs that write, as the variable writes has them.
func writable(rules []authorization.ResourceRule) map[string]string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if strings.HasPrefix(resource, "selfsubject") || strings.HasSuffix(resource, "/status") {
				continue
			}
			for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
				for _, verb := range rule.Verbs {
					if verb != "get" && verb != "list" && verb != "watch" {
						verbs[path.Join(resource, name)] = append(verbs[path.Join(resource, name)], verb)
					}
				}
			}
		}
	}
	out := map[string]string{}
	for resource, v := range verbs {
		slices.Sort(v)
		out[resource] = strings.Join(slices.Compact(v), " ")
	}
	return out
}
