package proxy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/mesh"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const webID = "sidecar~10.1.1.1~web-0.v2.shop~shop.svc.cluster.local"

func metadata(t *testing.T, text string) *structpb.Struct {
	t.Helper()
	m := &structpb.Struct{}
	if text == "" {
		return nil
	}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParse(t *testing.T) {
	node := metadata(t, `{
		"LABELS": {"app": "web"}, "CLUSTER_ID": "c1", "INTERCEPTION_MODE": "none", "INSTANCE_IPS": "10.1.1.1,fd00::1",
		"ISTIO_VERSION": "1.30.0", "IDLE_TIMEOUT": "7s", "SOMETHING": [1, {"else": true}]}`)
	p, err := Parse(Node{ID: webID, Extensions: []string{"b", "a", "b"}, Metadata: node})
	if err != nil {
		t.Fatal(err)
	}
	want := &Proxy{
		ID: webID, Role: Sidecar, Addresses: []string{"10.1.1.1", "fd00::1"}, Name: "web-0.v2", Namespace: "shop",
		Domain: "shop.svc.cluster.local", Labels: mesh.LabelsOf(map[string]string{"app": "web"}), ClusterID: "c1", Mode: None, Idle: 7 * time.Second,
		Version: "1.30.0", Extensions: []string{"a", "b"}, Metadata: node, SplitRoutes: true,
	}
	if !p.Equal(want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

// TestOwnPorts: metadata name the ports of Envoy and of the agent, as numbers or as texts; ports that all proxies have are not listed.
func TestOwnPorts(t *testing.T) {
	for text, want := range map[string][]uint32{
		`{}`: nil,
		`{"ENVOY_STATUS_PORT": 15021, "ENVOY_PROMETHEUS_PORT": 15090, "PROXY_CONFIG": {"statusPort": 15020, "proxyAdminPort": 15000}}`: nil,
		`{"ENVOY_STATUS_PORT": 9000, "ENVOY_PROMETHEUS_PORT": "8999", "PROXY_CONFIG": {"statusPort": 9001, "proxyAdminPort": "9000"}}`: {8999, 9000, 9001},
		`{"ENVOY_STATUS_PORT": 70000, "ENVOY_PROMETHEUS_PORT": "x", "PROXY_CONFIG": "{}"}`:                                             nil,
	} {
		p, err := Parse(Node{ID: webID, Metadata: metadata(t, text)})
		if err != nil || !slices.Equal(p.OwnPorts.Items(), want) {
			t.Errorf("with %s: %v, %v; want %v", text, p.OwnPorts.Items(), err, want)
		}
	}
}

// TestSplitRoutes: a proxy gets virtual hosts as resources of their own unless it says that it does not want them.
func TestSplitRoutes(t *testing.T) {
	for text, want := range map[string]bool{`{}`: true, `{"VHDS": "true"}`: true, `{"VHDS": "false"}`: false, `{"VHDS": "0"}`: false} {
		p, err := Parse(Node{ID: webID, Metadata: metadata(t, text)})
		if err != nil || p.SplitRoutes != want {
			t.Errorf("with %s: %t, %v; want %t", text, p.SplitRoutes, err, want)
		}
	}
}

// TestCertificates: a proxy says that it has no certificates, or that they come from another authority than the control plane. A proxy of Istio says
// neither.
func TestCertificates(t *testing.T) {
	for text, want := range map[string]Proxy{
		`{}`: {}, `{"WORKLOAD_CERTIFICATES": "none"}`: {NoCertificate: true}, `{"WORKLOAD_CERTIFICATES": "other-authority"}`: {OtherAuthority: true},
		`{"WORKLOAD_CERTIFICATES": "other"}`: {},
	} {
		p, err := Parse(Node{ID: webID, Metadata: metadata(t, text)})
		if err != nil || p.NoCertificate != want.NoCertificate || p.OtherAuthority != want.OtherAuthority {
			t.Errorf("with %s: none %t, of another authority %t, %v", text, p.NoCertificate, p.OtherAuthority, err)
		}
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ id, metadata, want string }{
		{"", "", "node id is empty"},
		{"sidecar", "", "has 1 parts"},
		{"sidecar~10.1.1.1~web.shop~d~e", "", "has 5 parts"},
		{"ztunnel~10.1.1.1~web.shop~d", "", `role "ztunnel"`},
		{"sidecar~ten~web.shop~d", "", `address "ten"`},
		{"sidecar~10.1.1.1~web~d", "", "name.namespace"},
		{"sidecar~10.1.1.1~web.~d", "", "name.namespace"},
		{"sidecar~10.1.1.1~" + strings.Repeat("x", 2000) + ".shop~d", "", "longer than"},
		{webID, `{"LABELS": "app=web"}`, "LABELS is not an object"},
		{webID, `{"LABELS": {"app": 1}}`, `LABELS: the value of "app"`},
		{webID, `{"CLUSTER_ID": {}}`, "CLUSTER_ID is not a string"},
		{webID, `{"INTERCEPTION_MODE": "ALL"}`, "INTERCEPTION_MODE"},
		{webID, `{"GENERATOR": "grpc"}`, `GENERATOR: "grpc" is not supported yet`},
		{webID, `{"INSTANCE_IPS": "10.1.1.1,x"}`, `INSTANCE_IPS: "x"`},
		{"router~10.1.1.1~gw-0.edge~x", `{"PROXY_CONFIG": {"gatewayTopology": {"numTrustedProxies": -1}}}`, "PROXY_CONFIG: gatewayTopology.numTrustedProxies: -1"},
		{"router~10.1.1.1~gw-0.edge~x", `{"PROXY_CONFIG": {"gatewayTopology": {"numTrustedProxies": "2"}}}`, "numTrustedProxies is not a number"},
		{"router~10.1.1.1~gw-0.edge~x", `{"PROXY_CONFIG": {"connectionSettings": {"httpIdleTimeout": "soon"}}}`, "PROXY_CONFIG: connectionSettings: "},
		{"router~10.1.1.1~gw-0.edge~x", `{"PROXY_CONFIG": {"gatewayTopology": {"forwardClientCertDetails": 2}}}`, "gatewayTopology.forwardClientCertDetails is not a string"},
		{webID, `{"NAMESPACE": "bank"}`, `namespace is "bank", and its node id has "shop"`},
	} {
		_, err := Parse(Node{ID: c.id, Metadata: metadata(t, c.metadata)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%.60q, %s) = %v, want %q", c.id, c.metadata, err, c.want)
		}
	}
}

// TestGatewayMetadata: a router says which networks it wants and which proxies are in front of it; null and fields of newer versions are none.
func TestGatewayMetadata(t *testing.T) {
	const router = "router~10.1.1.1~gw-0.edge~edge.svc.cluster.local"
	for _, c := range []struct {
		id, metadata string
		networks     string
		topology     Topology
	}{
		{router, `{}`, "", Topology{}},
		{router, `{"REQUESTED_NETWORK_VIEW": " south,,north,south"}`, "north south", Topology{}},
		{webID, `{"REQUESTED_NETWORK_VIEW": "north", "PROXY_CONFIG": {"gatewayTopology": {"numTrustedProxies": 2}}}`, "north", Topology{}},
		{router, `{"PROXY_CONFIG": {"statusPort": 15020}}`, "", Topology{}},
		{router, `{"PROXY_CONFIG": {"gatewayTopology": null}}`, "", Topology{}},
		{router, `{"PROXY_CONFIG": {"gatewayTopology": {"numTrustedProxies": 2, "new": {}}}}`, "", Topology{Own: true, TrustedProxies: 2}},
		{router, `{"PROXY_CONFIG": {"gatewayTopology": {"forwardClientCertDetails": "FORWARD_ONLY", "proxyProtocol": {}}}}`, "",
			Topology{Own: true, ProxyProtocol: true, ClientCert: "FORWARD_ONLY"}},
	} {
		p, err := Parse(Node{ID: c.id, Metadata: metadata(t, c.metadata)})
		if err != nil || strings.Join(p.Networks.Items(), " ") != c.networks || p.Topology != c.topology {
			t.Errorf("%s: %v, %+v", c.metadata, err, p)
		}
	}
}

// TestConnectionSettings: a router has the settings for connections that it reports; a sidecar has the settings of the mesh, whatever it reports.
func TestConnectionSettings(t *testing.T) {
	const reported = `{"PROXY_CONFIG": {"connectionSettings": {"httpIdleTimeout": "9s"}}}`
	for id, want := range map[string][]connection.Settings{
		"router~10.1.1.1~gw-0.edge~edge.svc.cluster.local": {{Idle: connection.Limit[time.Duration]{Set: true, Value: 9 * time.Second}}}, webID: nil,
	} {
		p, err := Parse(Node{ID: id, Metadata: metadata(t, reported)})
		if err != nil || !slices.Equal(p.Connections.Items(), want) {
			t.Errorf("%s: %v, %+v", id, err, p.Connections)
		}
	}
}

// TestSizes: the metadata of a node is bounded, field by field, and the metadata of large workloads is not near the bounds.
func TestSizes(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	labels := func(name, value int) map[string]any {
		return map[string]any{"LABELS": map[string]any{text(name): text(value)}}
	}
	many := make([]string, maxExtensions+1)
	for what, c := range map[string]struct {
		fields map[string]any
		node   Node
		ok     bool
	}{
		"a label as long as Kubernetes has them": {labels(317, 63), Node{}, true},
		"the name of a label":                    {labels(318, 1), Node{}, false},
		"the value of a label":                   {labels(1, 64), Node{}, false},
		"texts as long as they may be":           {map[string]any{"CLUSTER_ID": text(1024), "NETWORK": text(1024)}, Node{}, true},
		"CLUSTER_ID":                             {map[string]any{"CLUSTER_ID": text(1025)}, Node{}, false},
		"NETWORK":                                {map[string]any{"NETWORK": text(1025)}, Node{}, false},
		"NODE_NAME":                              {map[string]any{"NODE_NAME": text(1025)}, Node{}, false},
		"ISTIO_VERSION":                          {map[string]any{"ISTIO_VERSION": text(1025)}, Node{}, false},
		"AUTO_REGISTER_GROUP":                    {map[string]any{"AUTO_REGISTER_GROUP": text(1025)}, Node{}, false},
		"SERVICE_ACCOUNT":                        {map[string]any{"SERVICE_ACCOUNT": text(1025)}, Node{}, false},
		"the zone of an address":                 {map[string]any{"INSTANCE_IPS": "fe80::1%" + text(1025)}, Node{}, false},
		"the region":                             {nil, Node{Locality: mesh.Locality{Region: text(1025)}}, false},
		"the zone":                               {nil, Node{Locality: mesh.Locality{Zone: text(1025)}}, false},
		"the subzone":                            {nil, Node{Locality: mesh.Locality{SubZone: text(1025)}}, false},
		"the name of an extension":               {nil, Node{Extensions: []string{text(257)}}, false},
		"extensions":                             {nil, Node{Extensions: many}, false},
		"what is not kept may have another length": {map[string]any{"OWNER": text(100_000)}, Node{}, true},
	} {
		m, err := structpb.NewStruct(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		c.node.ID, c.node.Metadata = webID, m
		if _, err := Parse(c.node); (err == nil) != c.ok || err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Any node and metadata are accepted or refused without a panic, and an accepted node can be a row.
func FuzzParse(f *testing.F) {
	f.Add(webID, `{"LABELS":{"a":"b"}}`)
	f.Add("~~~", `{"INSTANCE_IPS":","}`)
	f.Add("sidecar~::1~a.b~", `{"NAMESPACE":null}`)
	f.Fuzz(func(t *testing.T, id, text string) {
		m := &structpb.Struct{}
		if protojson.Unmarshal([]byte(text), m) != nil {
			m = nil
		}
		p, err := Parse(Node{ID: id, Metadata: m})
		if err != nil {
			return
		}
		if len(p.Addresses) == 0 || p.Namespace == "" || !p.Equal(p) {
			t.Errorf("%q, %q gives %+v", id, text, p)
		}
	})
}

func TestNodeNames(t *testing.T) {
	for id, want := range map[string]struct {
		name  string
		agent bool
	}{
		"sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local": {"web-0.shop", false},
		"agent~10.0.0.1~web-0.shop~shop.svc.cluster.local":   {"web-0.shop", true},
		"agents~10.0.0.1~web-0.shop~x":                       {"web-0.shop", false},
		"no node id":                                         {"no node id", false},
	} {
		if name, agent := NameOf(id), IsAgent(id); name != want.name || agent != want.agent {
			t.Errorf("%s: %q, %v", id, name, agent)
		}
	}
}
