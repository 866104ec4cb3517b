package kubesource

import (
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
		t.Errorf("remote clusters are told before the mesh configuration is known: %v", r)
	}
	if s.trust() != "td1" {
		t.Errorf("the mesh configuration is not read: %q", s.trust())
	}
	if s.now(s.problem("may not")) {
		t.Errorf("something is refused: %v", s.problems)
	}
}

// TestAccountWritesLittle checks that the account of the control plane has no verb that writes, but for statuses, for WorkloadEntries, for leases, and for
// questions about itself that every account may ask; and that a write is refused.
func TestAccountWritesLittle(t *testing.T) {
	p := on(t)
	client, err := kubernetes.NewForConfig(p.account())
	p.must(err)
	for _, namespace := range []string{p.namespace, meta.NamespaceDefault} {
		review := &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		review, err = client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, meta.CreateOptions{})
		p.must(err)
		seen := false
		for _, rule := range review.Status.ResourceRules {
			seen = seen || slices.Contains(rule.Resources, "endpointslices")
			for _, verb := range rule.Verbs {
				about := slices.ContainsFunc(rule.Resources, func(r string) bool {
					return !strings.HasPrefix(r, "selfsubject") && !strings.HasSuffix(r, "/status") && r != "leases" && r != "workloadentries"
				})
				if about && verb != "get" && verb != "list" && verb != "watch" {
					t.Errorf("in %s it may %s %v", namespace, verb, rule.Resources)
				}
			}
		}
		if !seen {
			t.Errorf("in %s it may not read endpoint slices: %+v", namespace, review.Status)
		}
	}
	_, err = client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "mine"}}, meta.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("writing a ConfigMap: %v, want that it is forbidden", err)
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
