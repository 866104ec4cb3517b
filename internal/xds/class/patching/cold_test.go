package patching_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/meshtest"
)

// somePatches are patches about what random meshes have.
func somePatches() []string {
	const router = "listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}"
	buffer := func(bytes int) string {
		return fmt.Sprintf(`{name: b, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: %d}}`, bytes)
	}
	return []string{
		"{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND, " + router + "}, patch: {operation: INSERT_BEFORE, value: " + buffer(1) + "}}",
		"{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, " + router + "}, patch: {operation: INSERT_BEFORE, value: " + buffer(2) + "}}",
		"{applyTo: HTTP_FILTER, match: {" + router + "}, patch: {operation: INSERT_BEFORE, value: " + buffer(0) + "}}",
		"{applyTo: LISTENER, match: {listener: {portNumber: 80}}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 9}}}",
		"{applyTo: LISTENER, match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 90}}, patch: {operation: REMOVE}}",
		"{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: one.com}}, patch: {operation: MERGE, value: {connect_timeout: 7s}}}",
		"{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {connect_timeout: 8s}}}",
		"{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: two.com, portNumber: 80}}, patch: {operation: REMOVE}}",
		"{applyTo: CLUSTER, patch: {operation: ADD, value: {name: added, type: STATIC, connect_timeout: 1s}}}",
		"{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: 'one.com:80'}}}, patch: {operation: MERGE, value: {request_headers_to_remove: [x]}}}",
		"{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {portNumber: 80, vhost: {name: 'two.com:80'}}}, patch: {operation: REMOVE}}",
		"{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {name: '80'}}, patch: {operation: ADD, value: {name: more, domains: [more.test]}}}",
		"{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: {match: {prefix: /x}, direct_response: {status: 204}}}}",
		"{applyTo: ROUTE_CONFIGURATION, match: {routeConfiguration: {portNumber: 80}}, patch: {operation: MERGE, value: {response_headers_to_remove: [y]}}}",
		"{applyTo: CLUSTER, match: {proxy: {metadata: {COLOUR: blue}}}, patch: {operation: MERGE, value: {connect_timeout: 9s}}}",
	}
}

// Whatever EnvoyFilters there are, and whatever changes below their patches, the published state equals the state computed from the rows alone.
func TestPatchedIsCold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := meshtest.New(rt)
		random := meshtest.Random{T: rt}
		ids := []string{"sidecar~10.1.0.1~w-0.a~a.svc.cluster.local", "sidecar~10.1.0.2~w-1.b~b.svc.cluster.local"}
		w.Connect(meshtest.Node(rt, ids[0], `{"LABELS":{"v":"1"},"COLOUR":"blue"}`))
		w.Connect(meshtest.Node(rt, ids[1], `{"LABELS":{"v":"2"}}`))
		for range rapid.IntRange(2, 9).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "filter") {
				list := rapid.SliceOfN(rapid.SampledFrom(somePatches()), 1, 4).Draw(rt, "patches")
				w.Apply(fmt.Sprintf(`
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %s, namespace: %s}
spec:
  priority: %d
  %s
  configPatches: [%s]
`, rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "name"), rapid.SampledFrom([]string{"a", "b", "istio-system"}).Draw(rt, "namespace"),
					rapid.IntRange(-1, 1).Draw(rt, "priority"), rapid.SampledFrom([]string{"", `workloadSelector: {labels: {v: "1"}}`}).Draw(rt, "selector"),
					strings.Join(list, ", ")))
			} else {
				w.Put(random.Object())
			}
			for _, id := range ids {
				w.Follow(id)
			}
			w.Check()
			if rt.Failed() {
				rt.FailNow()
			}
		}
	})
}
