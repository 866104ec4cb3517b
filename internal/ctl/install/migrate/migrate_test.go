package migrate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/config"
)

const mesh = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: good, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bad, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}, weight: lots}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: ambient, labels: {istio.io/dataplane-mode: ambient}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ztunnel, namespace: istio-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system}
spec: {template: {spec: {containers: [{name: discovery, env: [{name: PILOT_TYPO_VAR, value: "1"}, {name: POD_NAME, value: x}]}]}}}
`

// briefly returns the findings, each as its effect, object, field and page.
func briefly(list []Finding) (all []string) {
	for _, f := range list {
		if f.Reason == "" || f.Remedy == "" {
			all = append(all, "a finding without a reason or remedy: "+fmt.Sprint(f))
		}
		all = append(all, strings.Join([]string{string(f.Effect), f.Object, f.Field, f.Page}, "; "))
	}
	return all
}

// TestFindings: each kind of difference is found, and equal behaviour is no finding.
func TestFindings(t *testing.T) {
	m := New(config.VariableRemarks)
	m.File("mesh.yaml", []byte(mesh))
	want := []string{
		"refused; VirtualService shop/bad; spec.http[0].route[0].weight; doc/differences/configuration.md",
		"ignored; DaemonSet ztunnel; ; doc/differences.md",
		"ignored; Deployment istiod; env.PILOT_TYPO_VAR; doc/reference/istio-discovery.md",
		"ignored; HTTPRoute shop/route; ; doc/differences.md",
		"differs; routes, clusters and listeners of sidecars; ; doc/differences/traffic.md",
	}
	got := slices.DeleteFunc(briefly(m.Findings()), func(s string) bool { return strings.Contains(s, "Namespace") })
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if none := New(config.VariableRemarks); len(none.Findings()) != 0 {
		t.Errorf("an empty mesh has %v", none.Findings())
	}
}

// TestSettings: a setting of the mesh that has no effect is found.
func TestSettings(t *testing.T) {
	m := New(config.VariableRemarks)
	m.Analysis.Mesh("ConfigMap", []byte("hboneIdleTimeout: 5s\n"))
	if got := briefly(m.Findings()); len(got) != 1 || !strings.HasPrefix(got[0], "ignored; ") || !strings.Contains(got[0], "hboneIdleTimeout") {
		t.Errorf("%q", got)
	}
}

// answers is an API server that has answers by path.
type answers map[string]any

// ServeHTTP implements http.Handler.
func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	o, ok := a[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		o = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
	}
	if r.Method != http.MethodGet || strings.Contains(r.URL.Path, "secrets") {
		panic("asked for " + r.Method + " " + r.URL.Path)
	}
	if err := json.NewEncoder(w).Encode(o); err != nil {
		panic(err)
	}
}

type object map[string]any

// TestRead: the objects of a cluster are read by the kinds that it has, and its Secrets are not.
func TestRead(t *testing.T) {
	resources := func(version string, names ...string) object {
		list := []object{}
		for _, name := range names {
			list = append(list, object{"name": name, "kind": name, "namespaced": true, "verbs": []string{"list"}})
		}
		return object{"kind": "APIResourceList", "groupVersion": version, "resources": list}
	}
	version := object{"groupVersion": "networking.istio.io/v1", "version": "v1"}
	server := httptest.NewServer(answers{
		"/api":    object{"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1": resources("v1", "secrets", "namespaces", "pods"),
		"/apis": object{"kind": "APIGroupList", "groups": []object{
			{"name": "networking.istio.io", "versions": []object{version}, "preferredVersion": version}}},
		"/apis/networking.istio.io/v1": resources("networking.istio.io/v1", "virtualservices", "virtualservices/status"),
		"/apis/networking.istio.io/v1/virtualservices": object{"kind": "VirtualServiceList", "apiVersion": "networking.istio.io/v1", "metadata": object{}, "items": []object{
			{"kind": "VirtualService", "apiVersion": "networking.istio.io/v1", "metadata": object{"name": "bad", "namespace": "shop"}, "status": object{"x": 1},
				"spec": object{"hosts": []string{"reviews"}, "htttp": []string{}}}}},
		"/api/v1/namespaces": object{"kind": "NamespaceList", "apiVersion": "v1", "metadata": object{}, "items": []object{}},
	})
	t.Cleanup(server.Close)
	m := New(config.VariableRemarks)
	left, err := m.Read(t.Context(), &rest.Config{Host: server.URL}, "istio-system")
	if err != nil || len(left) != 1 || !strings.Contains(left[0], "there is no ConfigMap istio") {
		t.Errorf("%v, %q", err, left)
	}
	got := briefly(m.Findings())
	if len(got) != 2 || !strings.HasPrefix(got[0], "refused; VirtualService shop/bad; spec.htttp;") {
		t.Errorf("%q", got)
	}
	if _, err := New(config.VariableRemarks).Read(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, "istio-system"); err == nil || !strings.Contains(err.Error(), "--context") {
		t.Errorf("no cluster: %v", err)
	}
}
