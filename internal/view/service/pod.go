package service

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// definePods defines the endpoints of Services, one cell per endpoint slice, and the pods that ServiceEntries select, one cell per
// pod.
func (q *Queries) definePods(g *query.Graph) {
	q.sliceEndpoints = query.Each(g, "sliceEndpoints", func(r *query.Reader, service api.Key) omap.Map[api.Key, omap.Unit] {
		list := q.tables.Kube.SlicesOf.Group(r, service)
		if list.Len() > 0 {
			return list
		}
		for s := range q.tables.Kube.Written.Group(r, service).All() {
			return q.podsWith(r, Selection{s.Namespace, s.Labels})
		}
		return list
	}, query.Define(g, "slice", equalSelected, q.endpointsOf), func(service, at api.Key) endpointsKey {
		if at.Kind != kube.KindPod {
			service = api.Key{} // the cell of a slice depends on no service
		}
		return endpointsKey{service, at}
	})
	q.defineManual(g)
	elem := query.Define(g, "selectedPod", equalSelected, func(r *query.Reader, k api.Key) ([]SelectedEndpoint, bool) {
		pod, ok := q.tables.Kube.Pods.Get(r, k)
		if unready, _ := q.tables.Kube.UnreadyPods.Get(r, k); !ok || unready || pod.Address == "" {
			return nil, false
		}
		out := q.podEndpoint(r, k, pod, pod.Address)
		out.Second = q.secondAddress(pod)
		return []SelectedEndpoint{newSelectedEndpoint(podName(k), out)}, true
	})
	q.selectedPods = query.Each(g, "selectedPods", q.podsWith, elem, func(_ Selection, pod api.Key) api.Key { return pod })
}

// endpointsKey names a slice, or a pod as an endpoint of a Service without slices.
type endpointsKey struct{ service, at api.Key }

// endpointsOf are the endpoints of a slice, or of a pod that a Service without slices selects.
func (q *Queries) endpointsOf(r *query.Reader, k endpointsKey) ([]SelectedEndpoint, bool) {
	if k.at.Kind != kube.KindPod {
		return q.endpointsOfSlice(r, k.at)
	}
	s, ok := q.tables.Services.Get(r, k.service)
	pod, exists := q.tables.Kube.Pods.Get(r, k.at)
	if !ok || !exists || pod.Address == "" || k.at.Cluster != k.service.Cluster {
		return nil, false
	}
	out := q.podEndpoint(r, k.at, pod, pod.Address)
	if written, ok := q.tables.Kube.Services.Get(r, k.service); ok && written.DualStack {
		out.Second = q.secondAddress(pod)
	}
	out.Ports, out.OnlyPorts = map[string]uint32{}, true
	for _, p := range s.Ports {
		if n := podPort(pod, p); n != 0 {
			out.Ports[p.Name] = n
		}
	}
	if unready, _ := q.tables.Kube.UnreadyPods.Get(r, k.at); unready && out.Health == mesh.Healthy {
		out.Health = mesh.Unready
	}
	return []SelectedEndpoint{newSelectedEndpoint(podName(k.at), out)}, true
}

// podName names a pod among the selected endpoints of a namespace. WorkloadEntries have names without a slash.
func podName(k api.Key) string { return k.Cluster + "/" + k.Name }

// endpointsOfSlice are the endpoints of an endpoint slice. An endpoint that refers to a pod waits until the pod is known. One that
// refers to none takes its labels and its place from a pod with its address, if there is one.
func (q *Queries) endpointsOfSlice(r *query.Reader, k api.Key) ([]SelectedEndpoint, bool) {
	slice, ok := q.tables.Kube.Slices.Get(r, k)
	if !ok {
		return nil, false
	}
	ports, only := slicePorts(slice)
	var list []SelectedEndpoint
	seen := map[string]bool{}
	for _, e := range slice.Endpoints {
		if seen[e.Address] {
			continue
		}
		seen[e.Address] = true
		out := mesh.Endpoint{Address: e.Address, Place: mesh.Place{Cluster: k.Cluster}}
		out.Network = q.tables.NetworkOf(r, out.Labels, k.Cluster, e.Address)
		if at, pod := q.podOf(r, k, e); pod != nil {
			second, follows := q.paired(r, state.ServiceOf(k, slice), pod, e.Address)
			if follows {
				continue
			}
			out = q.podEndpoint(r, at, pod, e.Address)
			out.Second = second
			if at.Namespace != k.Namespace && pod.ServiceAccount != "" {
				out.ServiceAccount = at.Namespace + "/" + pod.ServiceAccount
			}
		} else if e.Pod != "" {
			continue
		}
		out.Ports, out.OnlyPorts = ports, only
		switch {
		case e.Health == kube.Ending:
			out.Health = mesh.Unusable
		case e.Health == kube.Draining:
			out.Health = mesh.Draining
		case e.Health == kube.NotReady && out.Health == mesh.Healthy:
			out.Health = mesh.Unready
		}
		list = append(list, newSelectedEndpoint(q.endpointName(r, k, e), out))
	}
	return list, true
}

// secondAddress is the address of a pod in the other version of IP than its first one, in a dual-stack mesh; empty if it has none.
func (q *Queries) secondAddress(pod *kube.Pod) string {
	if !q.tables.DualStack() {
		return ""
	}
	return mesh.Other(pod.Address, pod.MoreAddresses.Items()...)
}

// paired returns the address of a pod in the other version of IP, in a dual-stack mesh, if the slices of a Service have this one, too. There is one endpoint
// for both, at the first address of the pod: follows says that the given address is not the first.
func (q *Queries) paired(r *query.Reader, service api.Key, pod *kube.Pod, address string) (second string, follows bool) {
	if !q.tables.DualStack() || !pod.Has(address) {
		return "", false
	}
	list := append([]string{pod.Address}, pod.MoreAddresses.Items()...)
	other := mesh.Other(address, list...)
	if other == "" || q.tables.Kube.SlicesWith.Group(r, state.ServiceAddress{Service: service, Address: other}).Len() == 0 {
		return "", false
	}
	return other, slices.Index(list, other) < slices.Index(list, address)
}

// endpointName names an endpoint of a slice: the name of the slice and the address. Behind them is the pod that the endpoint refers to, if
// it is no pod with this address.
func (q *Queries) endpointName(r *query.Reader, slice api.Key, e kube.SliceEndpoint) string {
	name := slice.Name + "/" + e.Address
	if _, pod := q.podOf(r, slice, e); e.Pod == "" || pod.Has(e.Address) {
		return name
	}
	return name + "/" + e.Pod
}

// defineManual groups the endpoints of a Service by their addresses, and by the names of pods without these addresses that they refer to.
func (q *Queries) defineManual(g *query.Graph) {
	q.slicesWith = query.GroupBy(g, "slicesWith", q.sliceEndpoints, func(e SelectedEndpoint, add func(omap.Name, omap.Name)) {
		parts := strings.SplitN(e.name, "/", 3)
		for _, key := range parts[1:] {
			add(omap.Name(key), omap.Name(parts[0]))
		}
	})
}

// slicesOfPod returns the slices that can set ports of a pod: slices of Services without a selector, and hand-made
// slices of other Services.
func (q *Queries) slicesOfPod(r *query.Reader, k api.Key, pod *kube.Pod) omap.Map[api.Key, omap.Unit] {
	all := q.tables.Kube.SlicesNaming.Group(r, k)
	add := func(slice api.Key) { all = omap.With(all, omap.Put(slice, omap.Unit{})) }
	names := []string{k.Name}
	if pod.Address != "" {
		names = append(append(names, pod.MoreAddresses.Items()...), pod.Address)
	}
	for _, address := range names[1:] {
		for slice := range q.tables.Kube.SlicesAt.Group(r, state.AddressIn{Namespace: k.Namespace, Address: address}).All() {
			add(slice)
		}
	}
	for service := range q.tables.Kube.Unselecting.Group(r, k.Namespace).All() {
		if service.Cluster != k.Cluster {
			continue
		}
		for _, name := range names {
			for slice := range q.slicesWith.Group(r, service, omap.Name(name)).All() {
				add(api.Key{Kind: kube.KindEndpointSlice, Namespace: k.Namespace, Name: string(slice), Cluster: k.Cluster})
			}
		}
	}
	return all
}

// slicePorts returns the numbered ports of the endpoints of a slice, by the name of the port of the service. A port without a number means all
// ports of the service, whatever its name is: then only is false, and ports without a number in the slice have the number of their target.
func slicePorts(slice *kube.Slice) (ports map[string]uint32, only bool) {
	ports, only = map[string]uint32{}, true
	for p := range slice.Ports.All() {
		if p.Number == 0 {
			only = false
			continue
		}
		ports[p.Name] = p.Number
	}
	return ports, only
}

// podOf is the pod of an endpoint of a slice; nil if there is none.
func (q *Queries) podOf(r *query.Reader, slice api.Key, e kube.SliceEndpoint) (api.Key, *kube.Pod) {
	if e.Pod != "" {
		k := api.Key{Kind: kube.KindPod, Cluster: slice.Cluster}
		k.Namespace, k.Name = e.PodName(slice.Namespace)
		pod, _ := q.tables.Kube.Pods.Get(r, k)
		return k, pod
	}
	for k := range q.tables.Kube.PodsAt.Group(r, state.ClusterAddress{Cluster: slice.Cluster, Address: e.Address}).All() {
		if pod, ok := q.tables.Kube.Pods.Get(r, k); ok {
			return k, pod
		}
	}
	return api.Key{}, nil
}

// podEndpoint is a pod as an endpoint at one of its addresses, without ports.
func (q *Queries) podEndpoint(r *query.Reader, k api.Key, pod *kube.Pod, address string) mesh.Endpoint {
	mode, _ := mesh.LabelValue(pod.Labels, mesh.TLSModeLabel)
	health := mesh.Healthy
	if draining, _ := mesh.LabelValue(pod.Labels, mesh.DrainingLabel); draining != "" {
		health = mesh.Draining
	}
	return mesh.Endpoint{
		Address: address, Labels: pod.Labels, ServiceAccount: pod.ServiceAccount, MeshTLS: mode == mesh.TLSModeMesh, Place: q.podPlace(r, k, pod, address),
		Workload: pod.Owner.Name, Health: health,
	}
}

// podPlace is where a pod runs. The locality comes from a label of the pod, or else from its node.
func (q *Queries) podPlace(r *query.Reader, k api.Key, pod *kube.Pod, address string) mesh.Place {
	at := mesh.Place{Locality: mesh.LabelledLocality(pod.Labels), Cluster: k.Cluster, Node: pod.Node}
	at.Network = q.tables.NetworkOf(r, pod.Labels, k.Cluster, address)
	if at.Locality != (mesh.Locality{}) || pod.Node == "" {
		return at
	}
	if node, ok := q.tables.Kube.Nodes.Get(r, api.Key{Kind: kube.KindNode, Name: pod.Node, Cluster: k.Cluster}); ok {
		at.Locality = node.Locality
	}
	return at
}

// podsWith are the pods of a namespace that a selector picks.
func (q *Queries) podsWith(r *query.Reader, s Selection) omap.Map[api.Key, omap.Unit] {
	least := rarest(s.Labels, func(l mesh.Label) omap.Map[state.PodLabels, omap.Unit] {
		return q.tables.Kube.LabelSets.Group(r, selected.LabelIn{Namespace: s.Namespace, Label: l})
	})
	var pods omap.Map[api.Key, omap.Unit]
	for set := range least.All() {
		if !includes(set.Labels, s.Labels) {
			continue
		}
		var more []omap.Change[api.Key, omap.Unit]
		for k := range q.tables.Kube.PodsWith.Group(r, set).All() {
			more = append(more, omap.Put(k, omap.Unit{}))
		}
		pods = omap.With(pods, more...)
	}
	return pods
}

// includes reports whether a set of labels has all labels of another one.
func includes(set, labels mesh.Labels) bool {
	for l := range labels.All() {
		if !set.Has(l) {
			return false
		}
	}
	return true
}

// podInstances appends the services that a pod belongs to: services that select it, and services of slices with an endpoint that refers to
// it or is at one of its addresses.
func (q *Queries) podInstances(r *query.Reader, k api.Key, pod *kube.Pod, hits []instance) []instance {
	ep := q.podEndpoint(r, k, pod, pod.Address)
	for object := range q.selecting(r, k.Namespace, pod.Labels) {
		if len(hits) == maxInstances {
			return hits
		}
		if object.Cluster == "" || object.Cluster == k.Cluster {
			hit := q.newInstance(r, object, ep)
			hit.port = func(p mesh.Port) uint32 { return podPort(pod, p) }
			hits = append(hits, hit)
		}
	}
	for at := range q.slicesOfPod(r, k, pod).All() {
		slice, ok := q.tables.Kube.Slices.Get(r, at)
		if !ok || at.Cluster != k.Cluster || len(hits) == maxInstances {
			continue
		}
		in := ep
		in.Ports, in.OnlyPorts = slicePorts(slice)
		hits = append(hits, q.newInstance(r, api.Key{Kind: kube.KindService, Namespace: at.Namespace, Name: slice.Service, Cluster: at.Cluster}, in))
	}
	return hits
}

// ownAddresses are the addresses of a pod with the ports of its headless services that are recognised by address.
func (q *Queries) ownAddresses(r *query.Reader, pod *kube.Pod, of []instance) intern.List[netip.AddrPort] {
	var list []netip.AddrPort
	for _, hit := range of {
		s, ok := q.tables.Services.Get(r, hit.object)
		if !ok || !s.Headless {
			continue
		}
		for _, p := range s.Ports {
			if p.Protocol == mesh.UDP || p.Protocol.IsHTTP() {
				continue
			}
			for _, text := range append(pod.MoreAddresses.Items(), pod.Address) {
				if a, err := netip.ParseAddr(text); err == nil {
					list = append(list, netip.AddrPortFrom(a.Unmap(), uint16(p.Number)))
				}
			}
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return intern.Of(slices.Compact(list)...)
}

// labelInstances are the Services and ServiceEntries that select a workload which is known only by the labels that its proxy reports. The
// proxy of a pod may connect before the API server has sent the pod, and it outlives the pod for a moment.
func (q *Queries) labelInstances(r *query.Reader, w Workload) (hits []instance) {
	for object := range q.selecting(r, w.Namespace, w.Labels) {
		if len(hits) == maxInstances {
			return hits
		}
		if object.Cluster == "" || object.Cluster == w.Cluster {
			hits = append(hits, q.newInstance(r, object, mesh.Endpoint{}))
		}
	}
	return hits
}

// podPort is the port of a pod for a port of a service that selects it; 0 if no container has a port of the name.
func podPort(pod *kube.Pod, p mesh.Port) uint32 {
	if p.TargetName == "" {
		return p.Target()
	}
	for named := range pod.Ports.All() {
		if named.Name == p.TargetName && named.UDP == (p.Protocol == mesh.UDP) {
			return named.Number
		}
	}
	return 0
}

// findPod is the pod of a workload: the one of its name, or else one of its namespace at one of its addresses.
func (q *Queries) findPod(r *query.Reader, w Workload) (api.Key, *kube.Pod) {
	k := api.Key{Kind: kube.KindPod, Namespace: w.Namespace, Name: w.Name, Cluster: w.Cluster}
	if pod, ok := q.tables.Kube.Pods.Get(r, k); ok {
		return k, pod
	}
	for a := range w.Addresses.All() {
		for k := range q.tables.Kube.PodsAt.Group(r, state.ClusterAddress{Cluster: w.Cluster, Address: a}).All() {
			if pod, ok := q.tables.Kube.Pods.Get(r, k); ok && k.Namespace == w.Namespace {
				return k, pod
			}
		}
	}
	return api.Key{}, nil
}
