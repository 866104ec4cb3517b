package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/repo"
)

// captures are the ways a sidecar can get at traffic; each has listeners of its own kind.
var captures = []string{"REDIRECT", "NONE"}

// TestSamplesAccepted: Envoy accepts all that the samples become, loaded as if it were its own configuration; and the variants in try/ of a sample
// are good too, except the one named broken.
func TestSamplesAccepted(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range glob(t, root, "samples/*/config") {
		sample := filepath.Dir(config)
		base := glob(t, config, "*.yaml")
		tries := map[string][]string{"": base}
		variants, err := filepath.Glob(filepath.Join(sample, "try", "*.yaml")) // a sample needs none
		if err != nil {
			t.Fatal(err)
		}
		for _, try := range variants {
			replaced := slices.DeleteFunc(slices.Clone(base), func(f string) bool { return filepath.Base(f) == "routes.yaml" })
			tries[filepath.Base(try)] = append(replaced, try)
		}
		for try, files := range tries {
			t.Run(filepath.Base(sample)+"/"+try, func(t *testing.T) {
				w := meshtest.New(t)
				for _, f := range files {
					text, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(filepath.Base(f), "broken") {
						if docs := api.Decode(f, text); len(docs) == 0 || len(docs[0].Problems) == 0 {
							t.Errorf("%s has no problem", f)
						}
						continue
					}
					w.Apply(string(text))
				}
				if problems := w.Problems(); len(problems) > 0 {
					t.Errorf("problems: %s", strings.Join(problems, "\n"))
				}
				for _, capture := range captures {
					s := classState(t, w, capture, filepath.Base(sample))
					if s.Layers(resource.Cluster).Len() == 0 {
						t.Errorf("%s: no cluster comes of the sample", capture)
					}
					accepted(t, t.TempDir(), s)
				}
			})
		}
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return files
}

// TestRandomAccepted: Envoy accepts whatever random meshes become, in which hosts, ports and names collide.
func TestRandomAccepted(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		w := meshtest.New(rt)
		random := meshtest.Random{T: rt}
		for range rapid.IntRange(1, 25).Draw(rt, "objects") {
			w.Put(random.Object())
		}
		capture := rapid.SampledFrom(captures).Draw(rt, "capture")
		namespace := rapid.SampledFrom(meshtest.Namespaces()).Draw(rt, "namespace")
		accepted(rt, dir, classState(rt, w, capture, namespace))
	})
}

func classState(t meshtest.T, w *meshtest.World, capture, namespace string) *resource.State {
	t.Helper()
	id := "sidecar~10.1.0.1~client." + namespace + "~" + namespace + ".svc.cluster.local"
	return w.State(w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE":"`+capture+`"}`)))
}

// accepted lets Envoy judge all of a state. Assignments cannot be static, so each becomes the content of a cluster.
func accepted(t meshtest.T, dir string, s *resource.State) {
	t.Helper()
	carriers := omap.Map[omap.Name, *resource.Resource]{}
	for r := range s.Layers(resource.Endpoint).All() {
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		name := "assignment of " + r.Name()
		carriers = omap.With(carriers, omap.Put(omap.Name(name), resource.New(resource.Cluster, name, &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			LoadAssignment: m.(*endpointv3.ClusterLoadAssignment),
		})))
	}
	judged := *s
	judged.Types[resource.Cluster] = append(resource.Layers{carriers}, s.Layers(resource.Cluster)...)
	meshtest.Accept(t, envoyBinary, dir, &judged)
}

// verdict records what accepted says.
type verdict struct {
	*testing.T
	refused string
}

func (v *verdict) Errorf(format string, args ...any) { v.refused += fmt.Sprintf(format, args...) }

// TestRefusalIsSeen: what Envoy refuses does not pass for accepted, whatever type it is of.
func TestRefusalIsSeen(t *testing.T) {
	for typ, m := range map[resource.Type]proto.Message{
		resource.Cluster:  &clusterv3.Cluster{Name: "bad", LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED},
		resource.Endpoint: assignment("not-an-address"),
		resource.Listener: &listenerv3.Listener{Name: "bad"},
		resource.Route:    &routev3.RouteConfiguration{Name: "bad", VirtualHosts: []*routev3.VirtualHost{{Name: "bad", Domains: []string{"*.*"}}, {Name: "bad", Domains: []string{"*.*"}}}},
	} {
		s := &resource.State{}
		s.Types[typ] = resource.Layers{omap.With(omap.Map[omap.Name, *resource.Resource]{}, omap.Put(omap.Name("bad"), resource.New(typ, "bad", m)))}
		v := &verdict{T: t}
		accepted(v, t.TempDir(), s)
		if !strings.Contains(v.refused, "refuses") {
			t.Errorf("a bad %v was accepted: %s", typ, v.refused)
		}
	}
}

func assignment(address string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "bad", Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
			}}},
		}}}},
	}}}
}
