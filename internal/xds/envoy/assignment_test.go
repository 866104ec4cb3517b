package envoy

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// EncodeAssignment says the same, byte by byte, as the message that Assignment makes.
func TestEncodeAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var groups []mesh.Group
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			g := mesh.Group{
				Locality: mesh.ParseLocality(rapid.SampledFrom([]string{"", "r", "r/z", "r/z/s", "ü/z"}).Draw(t, "locality")),
				Priority: rapid.Uint32Range(0, 300).Draw(t, "priority"),
				Weight:   rapid.SampledFrom([]uint32{0, 1, 1 << 31}).Draw(t, "share"),
			}
			for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
				e := &mesh.Endpoint{
					Address: rapid.SampledFrom([]string{"10.0.0.1", "2001:db8::1", "unix:///run/a.sock", "unix://" + string(bytes.Repeat([]byte("x"), 300)), "name", ""}).Draw(t, "address"),
					Weight:  rapid.SampledFrom([]uint32{0, 1, 200, 1<<32 - 1}).Draw(t, "weight"),
				}
				if _, unix := (mesh.PortEndpoint{Endpoint: e}).UnixPath(); !unix {
					e.Second = rapid.SampledFrom([]string{"", "2001:db8::2"}).Draw(t, "second")
				}
				if rapid.Bool().Draw(t, "mesh") {
					e.ServiceAccount = "sa"
				}
				if rapid.Bool().Draw(t, "labelled") {
					e.Labels, e.Cluster = mesh.LabelsOf(map[string]string{"app": "web", "version": "v1"}), "c"
				}
				g.Endpoints = append(g.Endpoints, mesh.PortEndpoint{Endpoint: e, Port: rapid.Uint32Range(0, 65535).Draw(t, "port")})
			}
			groups = append(groups, g)
		}
		external := rapid.Bool().Draw(t, "external")
		peers := Peers{On: rapid.Bool().Draw(t, "measured"), Namespace: "shop"}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(Assignment("outbound|80||x", groups, external, peers))
		if err != nil {
			t.Fatal(err)
		}
		if got := EncodeAssignment("outbound|80||x", groups, external, peers); !bytes.Equal(got, want) {
			t.Fatalf("encoded as\n%x, the message is\n%x", got, want)
		}
	})
}
