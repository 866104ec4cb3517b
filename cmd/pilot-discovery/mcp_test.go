package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// served are the versions of the resources of a proxy, by type and name. A version is a hash of the content.
type served map[string]string

// fetch returns what a control plane serves to a proxy.
func (c *controlPlane) fetch() (all served) {
	c.t.Helper()
	conn := c.dial()
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	all = served{}
	node := &corev3.Node{Id: "sidecar~10.9.0.1~web-1.shop~shop.svc.cluster.local"}
	get := func(typ resource.Type, names ...string) {
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL(), ResourceNamesSubscribe: names})
		if err != nil {
			c.t.Fatal(err)
		}
		node = nil
		for {
			r, err := stream.Recv()
			if err != nil {
				c.t.Fatal(err)
			}
			for _, one := range r.Resources {
				all[typ.String()+" "+one.Name] = one.Version
			}
			if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
				c.t.Fatal(err)
			}
			if r.TypeUrl == typ.URL() {
				return
			}
		}
	}
	get(resource.Cluster)
	var clusters []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name, ok := strings.CutPrefix(name, "CDS outbound|"); ok {
			clusters = append(clusters, "outbound|"+name)
		}
	}
	get(resource.Endpoint, clusters...)
	get(resource.Listener)
	get(resource.Route, "80", "90")
	return all
}

// mesh is configuration of several kinds, with a policy that concerns the proxy.
const meshOfFirst = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ratings, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z", labels: {team: a}}
spec:
  hosts: [ratings.test]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: grpc, protocol: GRPC}]
  location: MESH_INTERNAL
  resolution: STATIC
  workloadSelector: {labels: {app: ratings}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: ratings-1, namespace: shop}
spec: {address: 192.0.2.7, labels: {app: ratings, version: v1}, locality: r/z, weight: 3}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings, namespace: shop}
spec: {hosts: [ratings.test], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: ratings.test, subset: v1}}], timeout: 3s}, {route: [{destination: {host: ratings.test}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: ratings, namespace: shop}
spec: {host: ratings.test, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: logs, namespace: shop}
spec: {accessLogging: [{providers: [{name: envoy}]}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: shop}
spec:
  configPatches:
  - {applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: ratings.test}}, patch: {operation: MERGE, value: {alt_stat_name: patched}}}
`

// TestReadsAnother: a control plane that reads a first one only by MCP serves its proxies byte-equal resources, follows its changes, and keeps the
// last configuration when the first one is gone.
func TestReadsAnother(t *testing.T) {
	t.Setenv("ENABLE_XDS_API_GENERATOR_AUTH", "false")
	services := filepath.Join(t.TempDir(), "registries.yaml")
	put(t, services, "registries: [{type: memory, name: legacy, services: [{host: db.legacy, ports: [{number: 5432, protocol: tcp}], endpoints: [{address: 192.0.2.5}]}]}]")
	plain := filepath.Join(t.TempDir(), "mesh") // the mesh configuration is not served, and is the same for both except for the source
	put(t, plain, "rootNamespace: istio-system")
	first := start(t, "--meshConfig="+plain, "--registriesConfig="+services, "--stateDir="+t.TempDir())
	first.write("mesh.yaml", meshOfFirst)
	first.ready()
	first.until("/debug/configz", func(_ int, body string) bool { return strings.Contains(body, "ratings-1") })

	settings, none := filepath.Join(t.TempDir(), "mesh"), t.TempDir()
	put(t, settings, "rootNamespace: istio-system\nconfigSources: [{address: xds://"+first.grpc+"}]")
	second := startEmpty(t, none, "--meshConfig="+settings, "--stateDir="+t.TempDir(), "--registries=MCP")
	second.ready()
	// same waits until the first one has read an edit, as done says, and the second one serves the same.
	same := func(what string, done func(served) bool) {
		t.Helper()
		limit := time.After(10 * time.Second)
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			a, b := first.fetch(), second.fetch()
			differing := differences(a, b)
			if len(differing) == 0 && done(a) {
				return
			}
			select {
			case <-again.C:
			case <-limit:
				t.Fatalf("%s: of %d resources, these differ: %v", what, len(a), differing)
			}
		}
	}
	same("at the start", func(a served) bool { return len(a) > 10 })
	if all := second.fetch(); all["CDS outbound|80|v1|ratings.test"] == "" || all["EDS outbound|5432||db.legacy"] == "" {
		t.Errorf("served: %v", slices.Sorted(maps.Keys(all)))
	}
	const edited = "EDS outbound|80||ratings.test"
	was := second.fetch()[edited]
	first.write("mesh.yaml", strings.ReplaceAll(strings.ReplaceAll(meshOfFirst, "192.0.2.7", "192.0.2.8"), "/secret", "/other"))
	same("after an edit", func(a served) bool { return a[edited] != was })
	first.write("reviews.yaml", "# nothing")
	same("after a removal", func(a served) bool { return a["CDS outbound|80||reviews.shop.svc.cluster.local"] == "" })

	before := second.fetch()
	if code := first.stop(); code != 0 {
		t.Errorf("the first one ended with %d", code)
	}
	second.until("/debug/registries", func(_ int, body string) bool { return strings.Contains(body, `"stale"`) })
	if now := second.fetch(); !maps.Equal(before, now) {
		t.Errorf("without the first one, these differ: %v", differences(before, now))
	}
	if code := second.stop(); code != 0 {
		t.Errorf("the second one ended with %d", code)
	}
}

// differences are the names of the resources that differ. The resources of the service of a registry do, because its ServiceEntry has another name.
func differences(a, b served) (names []string) {
	for _, list := range []served{a, b} {
		for name := range list {
			if a[name] != b[name] && !strings.Contains(name, "|5432||") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestConfigurationIsClosed: a client without an identity reads no configuration, in either variant.
func TestConfigurationIsClosed(t *testing.T) {
	c := start(t, "--stateDir="+t.TempDir())
	c.ready()
	defer c.stop()
	conn := c.dial()
	defer func() { _ = conn.Close() }()
	meta, err := structpb.NewStruct(map[string]any{"GENERATOR": "api", "NAMESPACE": "istio-system"})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev3.Node{Id: "sidecar~10.9.0.9~reader.istio-system~x", Metadata: meta}
	const entries = "networking.istio.io/v1/ServiceEntry"
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	world, err := client.StreamAggregatedResources(t.Context())
	if err == nil {
		err = world.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: entries})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := world.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("State-of-the-World: %v, %v", r, err)
	}
	delta, err := client.DeltaAggregatedResources(t.Context())
	if err == nil {
		err = delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: entries})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := delta.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("delta: %v, %v", r, err)
	}
}

// TestMCPNeedsServer: --registries=MCP without a server is a mistake of the command line.
func TestMCPNeedsServer(t *testing.T) {
	c := start(t, "--registries=MCP", "--stateDir="+t.TempDir())
	select {
	case code := <-c.exit:
		if code != 2 || !strings.Contains(c.said(), "configSources") {
			t.Errorf("it ends with %d: %s", code, c.said())
		}
	case <-time.After(20 * time.Second):
		t.Error("it starts")
		c.stop()
	}
}

// TestOtherSources: what configSources name that is no MCP server is a Problem, and does not keep the control plane from starting.
func TestOtherSources(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "mesh")
	put(t, settings, `configSources: [{address: "k8s://"}, {address: "fs:///etc"}, {address: "xds://192.0.2.1:15010"}]`)
	c := start(t, "--meshConfig="+settings, "--stateDir="+t.TempDir())
	c.ready()
	defer c.stop()
	c.until("/debug/problemz", func(code int, body string) bool {
		return code == http.StatusOK && strings.Contains(body, "configSources[0]") && strings.Contains(body, "configSources[1]") && strings.Contains(body, "only be read over TLS")
	})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
