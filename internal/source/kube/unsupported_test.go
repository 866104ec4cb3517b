package kube_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/source/kube"
)

// define makes an API server serve a kind, as a CustomResourceDefinition does.
func define(t *testing.T, server *apiServer, of string) {
	t.Helper()
	server.put(object(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "+of+"}}"))
}

// all returns the problems in their order.
func (r *replica) all() (list []string) {
	r.applying.Lock()
	defer r.applying.Unlock()
	for p := range r.problems {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return list
}

// ready reports whether the source is ready, when nothing happens any more at this time.
func (r *replica) ready() bool {
	synctest.Wait()
	r.applying.Lock()
	defer r.applying.Unlock()
	return r.synced
}

func (r *replica) wants(when string, problems ...string) {
	r.t.Helper()
	synctest.Wait()
	if got := r.all(); !slices.Equal(got, problems) {
		r.t.Errorf("%s:\n%q, want\n%q", when, got, problems)
	}
}

// TestUnsupportedKinds checks that there is one problem for each unsupported kind with objects, for as long as there are some. Their kinds
// may be defined later and be gone again.
func TestUnsupportedKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		define(t, server, "udproutes.gateway.networking.k8s.io")
		define(t, server, "gateways.networking.istio.io")
		filter := func(name, labels string) {
			server.put(object(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: UDPRoute, metadata: {name: "+name+", namespace: shop, labels: {"+labels+"}}, spec: {}}"))
		}
		filter("b", "")
		r := join(t, server)
		defer func() { r.stop() }()
		const filters = "cluster Kubernetes: warning: UDPRoute is not supported yet: ignored; objects of udproutes.gateway.networking.k8s.io: "
		r.wants("at the start", filters+"1, shop/b")
		if !r.synced {
			t.Error("not ready")
		}
		for p := range r.problems {
			if p.Code != "kind-unsupported" {
				t.Errorf("the code %q", p.Code)
			}
		}
		filter("a", "")
		filter("other-revision", "istio.io/rev: canary")
		r.wants("another one", filters+"2, shop/a, shop/b")
		for i := range 12 {
			filter(fmt.Sprintf("c%02d", i), "")
		}
		r.wants("many", filters+"14, shop/a, shop/b, shop/c00, shop/c01, shop/c02, shop/c03, shop/c04, shop/c05, shop/c06, shop/c07, and 4 more")
		for i := range 12 {
			server.remove("UDPRoute", fmt.Sprintf("shop/c%02d", i))
		}
		server.remove("UDPRoute", "shop/a")
		class := object(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: istio}}")
		server.put(class)
		r.wants("a kind that is not defined", filters+"1, shop/b")
		define(t, server, "gatewayclasses.gateway.networking.k8s.io")
		r.wants("a kind without namespaces",
			"cluster Kubernetes: warning: GatewayClass is not supported yet: ignored; objects of gatewayclasses.gateway.networking.k8s.io: 1, istio", filters+"1, shop/b")
		server.remove("CustomResourceDefinition", "gatewayclasses.gateway.networking.k8s.io")
		r.wants("the definition is gone", filters+"1, shop/b")
		server.remove("UDPRoute", "shop/b")
		r.wants("none")
	})
}

// TestUnsupportedKindsOfSelectedNamespaces checks that only objects count that would be passed on.
func TestUnsupportedKindsOfSelectedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.kinds["namespaces."] = "Namespace"
		define(t, server, "tcproutes.gateway.networking.k8s.io")
		server.put(object(t, "{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {name: a, namespace: shop}, spec: {}}"))
		r := join(t, server, func(o *kube.Options) {
			o.Mesh = &meshconfig.MeshConfig{DiscoverySelectors: []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": "on"}}}}
		})
		defer func() { r.stop() }()
		r.wants("not selected")
		server.put(object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {mesh: 'on'}}}"))
		r.wants("selected", "cluster Kubernetes: warning: TCPRoute is not supported yet: ignored; objects of tcproutes.gateway.networking.k8s.io: 1, shop/a")
	})
}

// TestUnsupportedKindsThatMayNotBeListed checks that a missing permission holds up nothing, and is a warning.
func TestUnsupportedKindsThatMayNotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		const of = "tcproutes.gateway.networking.k8s.io"
		define(t, server, of)
		server.allow(of, false)
		r := join(t, server)
		defer func() { r.stop() }()
		if !r.ready() {
			t.Error("not ready")
		}
		<-time.After(10 * time.Second)
		r.wants("refused", "cluster Kubernetes: warning: "+of+" are not supported yet, and may not be listed, so it is not known whether there are any: failed to list "+
			of+": "+of+" is forbidden; add the rule {apiGroups: [gateway.networking.k8s.io], resources: [tcproutes], verbs: [list, watch]} to the ClusterRole of the control plane")
		server.allow(of, true)
		<-time.After(10 * time.Second)
		r.wants("allowed")
	})
}
