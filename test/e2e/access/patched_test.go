package access

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/test/exam/pki"
)

// guarded is a workload that refuses requests for /secret. An EnvoyFilter changes the filters that decide that.
func guarded(namespace, address, operation, value string) string {
	text := document("ServiceEntry", namespace, "w", nil, object{
		"hosts": []string{"w." + namespace + ".test"}, "resolution": "STATIC", "location": "MESH_INTERNAL", "endpoints": []object{{"address": address}},
		"ports": []object{{"number": httpPort, "name": "http", "protocol": "HTTP"}},
	}) + document("AuthorizationPolicy", namespace, "secret", nil, object{
		"action": "DENY", "rules": []object{{"to": []object{{"operation": object{"paths": []string{"/secret"}}}}}},
	})
	if operation == "" {
		return text
	}
	return text + fmt.Sprintf(`
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: open, namespace: %s}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.rbac}}}}}
    patch: {operation: %s%s}
---
`, namespace, operation, value)
}

// TestRemovedPolicies: an EnvoyFilter may take away the filter that decides about access. Then Envoy lets the request through, can-i says so, and a
// problem names the patch.
func TestRemovedPolicies(t *testing.T) {
	const nothing = `, value: {name: envoy.filters.http.rbac, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC}}`
	cases := []struct {
		namespace, operation, value string
		status                      int
	}{{"kept", "", "", http.StatusForbidden}, {"removed", "REMOVE", "", http.StatusOK}, {"replaced", "REPLACE", nothing, http.StatusOK}}
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	w := meshtest.New(t)
	text, subjects, listeners := "", []*subject{}, []*listenerv3.Listener{}
	for n, c := range cases {
		s := &subject{namespace: c.namespace, address: netip.AddrFrom4([4]byte{127, 79, 0, byte(1 + n)})}
		text += guarded(c.namespace, s.address.String(), c.operation, c.value)
		subjects = append(subjects, s)
	}
	w.Load(strings.TrimSuffix(text, "---\n"))
	for _, s := range subjects {
		id := fmt.Sprintf("sidecar~%s~w-0.%s~%[2]s.svc.cluster.local", s.address, s.namespace)
		w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE": "NONE"}`))
		l := inbound(t, w, id, httpPort)
		s.listeners = map[uint32]*listenerv3.Listener{httpPort: l}
		listeners = append(listeners, l)
	}
	startEnvoy(t, keys, listeners, map[string]net.Addr{envoy.InboundCluster(httpPort): startApplication(t, keys)})
	c := &client{keys: keys, certificates: map[string]tls.Certificate{}}
	for n, s := range subjects {
		r := access.Request{Port: httpPort, Address: s.address, Source: netip.MustParseAddr("127.1.1.1"), Method: "GET", Host: "w.test", Path: "/secret"}
		d, o := access.Evaluate(s.listeners[httpPort], r, access.Options{}), c.send(r)
		if message := wrong(d, r, o); message != "" || o.status != cases[n].status {
			t.Errorf("%s: status %d, want %d: %s: %+v", s.namespace, o.status, cases[n].status, message, d)
		}
		named := false
		for _, p := range w.Problems() {
			named = named || strings.Contains(p, "EnvoyFilter "+s.namespace+"/open") && strings.Contains(p, "access")
		}
		if named != (cases[n].operation != "") {
			t.Errorf("%s: a problem names the patch: %t; there are %q", s.namespace, named, w.Problems())
		}
	}
}
