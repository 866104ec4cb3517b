package meshtest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
)

// Edited draws a change of an object: it is hidden or shown, widened or narrowed, or something else is said in its place.
func (g Random) Edited(o *api.Object) *api.Object {
	spec := proto.Clone(o.Spec)
	switch s := spec.(type) {
	case *networking.ServiceEntry:
		g.editService(s)
	case *networking.VirtualService:
		if len(s.Hosts) > 0 && rapid.Bool().Draw(g.T, "hide") {
			s.ExportTo = g.exportTo()
		} else {
			spec = g.virtualService()
		}
	case *networking.DestinationRule:
		if s.WorkloadSelector == nil && rapid.Bool().Draw(g.T, "hide") {
			s.ExportTo = g.exportTo()
		} else {
			spec = g.destinationRule()
		}
	case *networking.Sidecar:
		last := s.Egress[len(s.Egress)-1]
		last.Hosts = g.imports()
	case *networking.WorkloadEntry:
		s.Labels, s.Locality = g.labels(), g.locality()
	}
	sealed, err := api.Object{Key: api.Key{Namespace: o.Key.Namespace, Name: o.Key.Name}, Created: o.Created, Spec: spec}.Seal()
	if err != nil {
		g.Fatal(err)
	}
	return sealed
}

func (g Random) editService(s *networking.ServiceEntry) {
	switch pick(g.T, "edit", "hide", "hide", "hosts", "ports", "endpoints") {
	case "hide":
		s.ExportTo = g.exportTo()
	case "hosts":
		s.Hosts = rapid.SliceOfNDistinct(rapid.SampledFrom(serviceHosts()), 1, 3, rapid.ID).Draw(g.T, "hosts")
	case "ports":
		s.Ports = g.ports()
	case "endpoints":
		for _, e := range s.Endpoints {
			e.Labels, e.Locality = g.labels(), g.locality()
		}
	}
}

// Scope draws the Sidecar that all workloads of a namespace without one of their own are under.
func (g Random) Scope(ns string) *api.Object {
	hosts := g.imports()
	if rapid.Bool().Draw(g.T, "by namespace") {
		hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a/*", "b/*", "c/*", "istio-system/*"}), 1, 4, rapid.ID).Draw(g.T, "import")
	}
	return seal(api.Key{Namespace: ns, Name: "scope"}, &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}})
}

// Crowd is a number of plain services of each namespace, so that collections have more elements than collide.
func (g Random) Crowd() (list []*api.Object) {
	for _, ns := range Namespaces() {
		for i := range rapid.IntRange(0, 4).Draw(g.T, "crowd") {
			name := fmt.Sprint("plain-", i)
			list = append(list, seal(api.Key{Namespace: ns, Name: name}, &networking.ServiceEntry{
				Hosts: []string{name + "." + ns + ".svc.cluster.local"}, Resolution: networking.ServiceEntry_STATIC, ExportTo: g.exportTo(),
				Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
				Endpoints: []*networking.WorkloadEntry{{Address: "10.2.0.1", Labels: g.labels()}},
			}))
		}
	}
	return list
}

// Mesh draws a mesh configuration of settings that are acted upon.
func (g Random) Mesh() string {
	lines := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"proxyHttpPort: 90", "connectTimeout: 3s", "rootNamespace: c", "enableAutoMtls: false", "trustDomain: other.test",
		`defaultServiceExportTo: ["."]`, `defaultVirtualServiceExportTo: ["."]`, `defaultDestinationRuleExportTo: ["."]`,
		"outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "protocolDetectionTimeout: 1s", "h2UpgradePolicy: UPGRADE",
		"dnsRefreshRate: 5s", "localityLbSetting: {failoverPriority: [v]}", "tcpKeepalive: {probes: 3}",
	}), 0, 3, func(line string) string { return strings.SplitN(line, ":", 2)[0] }).Draw(g.T, "mesh")
	return strings.Join(lines, "\n")
}
