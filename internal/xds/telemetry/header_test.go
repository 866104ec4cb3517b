package telemetry

import (
	"regexp"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	telemetryapi "istio.io/api/telemetry/v1alpha1"

	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// TestWorkloadOfID: the name of a workload follows from the name of its pod, as far as that says it.
func TestWorkloadOfID(t *testing.T) {
	const cut = "a-deployment-with-a-name-that-is-longer-than-kubernetes-puxyz12" // 63 characters
	for pod, want := range map[string]string{
		"frontend-v1-7d4b9c8f6d-x2x4z": "frontend-v1", // Deployment
		"frontend-v1-54bcfd-x2x4z":     "frontend-v1", // of a small hash
		"web-0":                        "web",         // StatefulSet
		"web-v1-12":                    "web-v1",
		"node-agent-zzn4k":             "node-agent", // DaemonSet, Job or ReplicaSet
		"web-db-x2x4z":                 "web-db",     // whose name ends like a short hash
		"backup-28391234-b7kpl":        "backup",     // CronJob
		"shell":                        "shell",      // without an owner
		"my-pod.with-dots":             "my-pod.with-dots",
		"debug-tools":                  "debug-tools",
		cut:                            "",
		"":                             "",
	} {
		for id, want := range map[string]string{
			"sidecar~10.1.1.1~" + pod + ".shop~shop.svc.cluster.local": want, "router~fd00::1~" + pod + ".shop~shop.svc.cluster.local": want,
			pod: "", "sidecar~10.1.1.1~" + pod + "~shop.svc.cluster.local~x": "", "sidecar~10.1.1.1~" + pod: "",
		} {
			if got := regexp.MustCompile(workloadOfID).ReplaceAllString(id, "$1$2$3"); got != want {
				t.Errorf("%s: %q, want %q", id, got, want)
			}
		}
	}
}

// TestHeadersOfPeers: what a proxy says in headers is read over mutual TLS only, and no header passes a listener that measures on the server's side, or
// at a gateway. An old Envoy cannot read certificates, which have precedence, so it reads no headers either.
func TestHeadersOfPeers(t *testing.T) {
	const read, remove, none = "envoy.filters.http.header_to_metadata", "envoy.filters.http.header_mutation", "router"
	metrics := []view.Metric{{ID: telemetryapi.MetricSelector_REQUEST_COUNT}}
	for name, c := range map[string]struct {
		key           Key
		metrics       []view.Metric
		secure, plain string
	}{
		"server":           {Key{Side: view.Server}, metrics, read, remove},
		"old server":       {Key{Side: view.Server, OldStats: 38}, metrics, remove, remove},
		"client":           {Key{Side: view.Client}, metrics, none, none},
		"gateway":          {Key{Side: view.Client, Gateway: true}, metrics, remove, remove},
		"server, off":      {Key{Side: view.Server}, nil, none, none},
		"gateway, off":     {Key{Side: view.Client, Gateway: true}, nil, none, none},
		"an older gateway": {Key{Side: view.Client, Gateway: true, OldStats: 37}, metrics, remove, remove},
	} {
		var s Settings
		builder{Key: c.key}.measure(&s, c.metrics)
		l := &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{chain(envoy.ServerTLS{Mesh: true}), chain(envoy.ServerTLS{})}}
		s.Apply(l)
		if secure, plain := firstFilter(t, l.FilterChains[0]), firstFilter(t, l.FilterChains[1]); secure != c.secure || plain != c.plain {
			t.Errorf("%s: the first filters are %s and %s; want %s and %s", name, secure, plain, c.secure, c.plain)
		}
	}
}

// chain returns a filter chain with HTTP and some TLS.
func chain(tls envoy.ServerTLS) *listenerv3.FilterChain {
	m := &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{{Name: "router"}}}
	return &listenerv3.FilterChain{
		TransportSocket: tls.TransportSocket(),
		Filters:         []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Pack(m)}}},
	}
}

// firstFilter returns the name of the first HTTP filter of a filter chain.
func firstFilter(t *testing.T, c *listenerv3.FilterChain) string {
	t.Helper()
	m := new(hcmv3.HttpConnectionManager)
	if err := c.Filters[len(c.Filters)-1].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m.GetHttpFilters()[0].GetName()
}
