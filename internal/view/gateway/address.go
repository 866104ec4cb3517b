package gateway

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Addresses returns the IP addresses and names at which clients reach the gateways that serve Ingresses, sorted. They are the addresses
// of the Service of the mesh settings; or, if the settings have none, the external addresses of the nodes where these gateways run.
func (q *Queries) Addresses(r *query.Reader) intern.List[string] {
	list, _ := q.addresses.Get(r, struct{}{})
	return list
}

func (q *Queries) addressesOf(r *query.Reader, _ struct{}) (intern.List[string], bool) {
	settings, root := q.tables.Ingress(r), q.tables.RootNamespace(r)
	var list []string
	if settings.Service == "" {
		list = q.nodeAddresses(r, root, settings)
	} else {
		k := api.Key{Kind: kube.KindService, Namespace: root, Name: settings.Service, Cluster: q.tables.ClusterID()}
		if s, ok := q.tables.Kube.Services.Get(r, k); ok && s.Type == kube.ExternalName {
			list = []string{s.ExternalName}
		} else if ok {
			entrance, _ := q.tables.Networks.Entrances.Get(r, k)
			list = entrance.Addresses.Items()
		}
	}
	slices.Sort(list)
	return intern.Of(slices.Compact(list)...), true
}

// nodeAddresses returns the external addresses of the nodes where gateways with the label of the settings run.
func (q *Queries) nodeAddresses(r *query.Reader, namespace string, settings gateway.IngressSettings) (list []string) {
	for l := range settings.Selector().All() {
		for set := range q.tables.Kube.LabelSets.Group(r, selected.LabelIn{Namespace: namespace, Label: l}).All() {
			for k := range q.tables.Kube.PodsWith.Group(r, set).All() {
				pod, ok := q.tables.Kube.Pods.Get(r, k)
				if !ok || k.Cluster != q.tables.ClusterID() {
					continue
				}
				if node, ok := q.tables.Kube.Nodes.Get(r, api.Key{Kind: kube.KindNode, Name: pod.Node, Cluster: k.Cluster}); ok {
					list = append(list, node.Addresses.Items()...)
				}
			}
		}
	}
	return list
}

// Counting returns the Ingresses of an API server that count, by age.
func (q *Queries) Counting(r *query.Reader) (lists []omap.Map[selected.AgeKey, omap.Unit]) {
	for a := range q.tables.Gateways.Admissions.Group(r, struct{}{}).All() {
		if !a.Written && q.Standing(r, a) == Counts {
			lists = append(lists, q.tables.Gateways.Admitted.Group(r, a))
		}
	}
	return lists
}
