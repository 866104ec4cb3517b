package proxy

import (
	"strings"
	"testing"
	"time"

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
	p, err := Parse(Node{ID: webID, Extensions: []string{"b", "a", "b"}, Metadata: metadata(t, `{
		"LABELS": {"app": "web"}, "CLUSTER_ID": "c1", "INTERCEPTION_MODE": "none", "INSTANCE_IPS": "10.1.1.1,fd00::1",
		"ISTIO_VERSION": "1.30.0", "IDLE_TIMEOUT": "7s", "SOMETHING": [1, {"else": true}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := &Proxy{
		ID: webID, Role: Sidecar, Addresses: []string{"10.1.1.1", "fd00::1"}, Name: "web-0.v2", Namespace: "shop",
		Domain: "shop.svc.cluster.local", Labels: mesh.LabelsOf(map[string]string{"app": "web"}), ClusterID: "c1", Mode: None, Idle: 7 * time.Second,
		Version: "1.30.0", Extensions: []string{"a", "b"},
	}
	if !p.Equal(want) {
		t.Errorf("got %+v, want %+v", p, want)
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
	} {
		_, err := Parse(Node{ID: c.id, Metadata: metadata(t, c.metadata)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%.60q, %s) = %v, want %q", c.id, c.metadata, err, c.want)
		}
	}
}

// Whatever a proxy says of itself is read or refused, and what is read can be a row.
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
