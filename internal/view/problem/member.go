package problem

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// checkMember finds the settings without effect of a Service whose name a Service of another cluster has, too: that
// other Service leads, and defines the service.
func (q *Queries) checkMember(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	f := &findings{q: q, r: r, key: k}
	claims, ok := q.tables.Claims.Get(r, k)
	if !ok {
		return nil, false
	}
	leader := k
	leader.Cluster = claims.Leader
	own, hasOwn := q.tables.Kube.Services.Get(r, k)
	first, hasFirst := q.tables.Kube.Services.Get(r, leader)
	if !hasOwn || !hasFirst {
		return nil, false
	}
	switch {
	case first.Type == kube.ExternalName:
		f.warn("clusters-differ", "spec.type", "the Service in cluster %s is of type ExternalName, and decides: nothing of this one is used; give both the same type", leader.Cluster)
	case own.Type == kube.ExternalName:
		f.warn("clusters-differ", "spec.type", "it is of type ExternalName, and the Service in cluster %s, which decides, is not: nothing of this one is used; give both the same type", leader.Cluster)
	default:
		f.memberType(leader.Cluster, own, first)
		f.memberPorts(leader.Cluster, own.Ports, first.Ports)
	}
	if !slices.Equal(own.ExportTo, first.ExportTo) {
		f.warn("clusters-differ", "metadata.annotations[networking.istio.io/exportTo]", "it differs from the annotation of the Service in cluster %s, which counts; make them equal", leader.Cluster)
	}
	if own.Distribution != first.Distribution || own.Annotation != first.Annotation || own.NodeLocal != first.NodeLocal {
		f.warn("clusters-differ", "spec.trafficDistribution", "which endpoints are preferred differs from what the Service in cluster %s says, which counts; make them equal", leader.Cluster)
	}
	return f.list, len(f.list) > 0
}

// memberType warns of a Service that is headless if the one that leads is not, or the other way round.
func (f *findings) memberType(leader string, own, first *kube.Service) {
	switch own.Type {
	case first.Type:
	case kube.Headless:
		f.warn("clusters-differ", "spec.clusterIP", "it is headless, and the Service in cluster %s, which decides, is not: clients in this cluster have no address for it; give both an address, or neither", leader)
	default:
		f.warn("clusters-differ", "spec.clusterIP", "the Service in cluster %s, which decides, is headless: the addresses of this one are not used; give both an address, or neither", leader)
	}
}

// memberPorts warns of ports that differ. Ports of the same name belong together.
func (f *findings) memberPorts(leader string, own, first []kube.ServicePort) {
	named := func(list []kube.ServicePort, name string) (kube.ServicePort, bool) {
		i := slices.IndexFunc(list, func(p kube.ServicePort) bool { return p.Name == name })
		if i < 0 {
			return kube.ServicePort{}, false
		}
		return list[i], true
	}
	for i, p := range own {
		at := fmt.Sprintf("spec.ports[%d]", i)
		was, ok := named(first, p.Name)
		switch {
		case !ok:
			f.warn("clusters-differ", at+".name", "the Service in cluster %s, which decides, has no port named %q: no client can reach this port; add it there, or give both the same name", leader, p.Name)
		case was.Number != p.Number:
			f.warn("clusters-differ", at+".port", "the port %q is port %d of the Service in cluster %s, which decides: clients reach it at that number only; make them equal", p.Name, was.Number, leader)
		case was.Protocol != p.Protocol:
			f.warn("clusters-differ", at, "the port %q speaks %s here, and %s by the Service in cluster %s, which counts; make them equal", p.Name, p.Protocol, was.Protocol, leader)
		}
	}
	for _, p := range first {
		if _, ok := named(own, p.Name); !ok {
			f.warn("clusters-differ", "spec.ports", "it has no port named %q, as the Service in cluster %s has: its endpoints get no traffic of port %d; add the port", p.Name, leader, p.Number)
		}
	}
}
