package service

import (
	"iter"
	"slices"
	"strconv"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/view/peer"
)

// Selection names the workloads of a namespace that have all of the labels.
type Selection struct {
	Namespace string
	Labels    mesh.Labels
}

// Select returns the selection of a selector in a namespace.
func Select(namespace string, selector map[string]string) Selection {
	return Selection{namespace, intern.Of(mesh.SortedLabels(selector)...)}
}

// SelectedEndpoint is a selected workload as an endpoint.
type SelectedEndpoint struct {
	name string
	hash omap.Hash
	mesh.Endpoint
}

func equalSelected(a, b []SelectedEndpoint) bool {
	return slices.EqualFunc(a, b, func(a, b SelectedEndpoint) bool { return a.name == b.name && a.hash == b.hash })
}

// OutputName is the name of the WorkloadEntry or pod, or the name of the slice followed by the address.
func (s SelectedEndpoint) OutputName() string { return s.name }

// ContentHash covers the endpoint.
func (s SelectedEndpoint) ContentHash() omap.Hash { return s.hash }

// Size is 0 because an endpoint is not sent by itself.
func (SelectedEndpoint) Size() int { return 0 }

func newSelectedEndpoint(name string, e mesh.Endpoint) SelectedEndpoint {
	b := make([]byte, 0, 128)
	text := func(s string) { b = append(append(b, s...), 0) }
	text(e.Address)
	text(e.Second)
	text(e.Locality.String())
	text(e.Network)
	text(e.Cluster)
	text(e.Node)
	text(e.ServiceAccount)
	text(e.Workload)
	b = strconv.AppendUint(b, uint64(e.Weight), 10)
	b = strconv.AppendBool(strconv.AppendBool(b, e.MeshTLS), e.OnlyPorts)
	b = append(b, byte(e.Health))
	for l := range e.Labels.All() {
		b = l.AppendTo(b)
	}
	b = append(b, 1)
	for _, name := range slices.Sorted(keys(e.Ports)) {
		text(name)
		b = strconv.AppendUint(b, uint64(e.Ports[name]), 10)
	}
	return SelectedEndpoint{name, omap.Sum(b), e}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

type selectedKey struct {
	Selection
	workload api.Key
}

// defineSelected defines one cell per selected workload, so that a change of one workload costs one cell.
func (q *Queries) defineSelected(g *query.Graph) {
	elem := query.Define(g, "selectedWorkload", equalSelected, func(r *query.Reader, k selectedKey) ([]SelectedEndpoint, bool) {
		e, ok := q.tables.Workloads.Get(r, k.workload)
		if !ok {
			return nil, false
		}
		if !includes(e.Labels, k.Labels) {
			return nil, false
		}
		return []SelectedEndpoint{newSelectedEndpoint(k.workload.Name, e)}, true
	})
	q.SelectedEndpoints = query.Each(g, "selected", q.workloadsWithRarestLabel, elem, func(s Selection, w api.Key) selectedKey {
		return selectedKey{s, w}
	})
}

// workloadsWithRarestLabel are the workloads that have that label of the selection which the fewest workloads have. They
// include all selected workloads.
func (q *Queries) workloadsWithRarestLabel(r *query.Reader, s Selection) omap.Map[api.Key, omap.Unit] {
	return rarest(s.Labels, func(l mesh.Label) omap.Map[api.Key, omap.Unit] {
		return q.tables.WorkloadsByLabel.Group(r, selected.LabelIn{Namespace: s.Namespace, Label: l})
	})
}

// rarest returns the smallest of the groups of labels.
func rarest[K omap.Key[K]](labels mesh.Labels, group func(mesh.Label) omap.Map[K, omap.Unit]) (least omap.Map[K, omap.Unit]) {
	first := true
	for l := range labels.All() {
		if m := group(l); first || m.Len() < least.Len() {
			least, first = m, false
		}
	}
	return least
}

// plainPorts marks endpoints that take no mesh TLS at their port, because a policy of their namespace says so. namespace is the namespace of
// the service. It remembers the answer for the labels of the last endpoint, since most endpoints have the same labels as the endpoint before.
type plainPorts struct {
	peers     *peer.Queries
	r         *query.Reader
	namespace string
	// of is the namespace of the last endpoint, and labels are its labels.
	of     string
	labels mesh.Labels
	plain  peer.Plain
	known  bool
}

func (p *plainPorts) mark(e mesh.PortEndpoint) mesh.PortEndpoint {
	if !e.MeshTLS {
		return e
	}
	if of, _ := mesh.AccountIn(p.namespace, e.ServiceAccount); !p.known || of != p.of || e.Labels != p.labels {
		p.of, p.labels, p.plain, p.known = of, e.Labels, p.peers.PlainTo(p.r, of, e.Labels), true
	}
	e.Plain = p.plain.At(e.Port)
	return e
}

// Declared are the endpoints of a declaration, for all of its ports, and the names of the workloads or slices that they
// come from; the name is empty for endpoints that the declaration lists itself. spec is the declaration.
func (q *Queries) Declared(r *query.Reader, k api.Key, spec *mesh.Service) iter.Seq2[string, *mesh.Endpoint] {
	return func(yield func(string, *mesh.Endpoint) bool) {
		e, ok := q.tables.Endpoints.Get(r, k)
		if !ok {
			return
		}
		for i := range e.Inline {
			if !yield("", &e.Inline[i]) {
				return
			}
		}
		for list := range q.besides(r).of(Declaration{Object: k, Spec: spec}, e.Selector) {
			for name, w := range list.All() {
				if !yield(string(name), &w.Endpoint) {
					return
				}
			}
		}
	}
}

// besides reads the endpoints that a declaration does not list itself.
func (q *Queries) besides(r *query.Reader) besides[omap.Map[omap.Name, SelectedEndpoint]] {
	return besides[omap.Map[omap.Name, SelectedEndpoint]]{
		slices:    func(k api.Key) omap.Map[omap.Name, SelectedEndpoint] { return q.sliceEndpoints.Get(r, k) },
		workloads: func(s Selection) omap.Map[omap.Name, SelectedEndpoint] { return q.SelectedEndpoints.Get(r, s) },
		pods:      func(s Selection) omap.Map[omap.Name, SelectedEndpoint] { return q.selectedPods.Get(r, s) },
	}
}

// Endpoints are the endpoints of a service for one of its ports, in the order of the declarations. Endpoints that take no requests of
// new sessions are left out if the service has no sessions.
func (q *Queries) Endpoints(r *query.Reader, s *Service, port uint32) []mesh.PortEndpoint {
	all := q.allEndpoints(r, s, port)
	if s.hasRegistries() {
		return all
	}
	return withoutDraining(all, s)
}

// allEndpoints are the endpoints of a service for one of its ports, whatever their health.
func (q *Queries) allEndpoints(r *query.Reader, s *Service, port uint32) []mesh.PortEndpoint {
	var out []mesh.PortEndpoint
	if s.hasRegistries() {
		return q.registered(r, s, port)
	}
	for _, declaration := range s.Declarations {
		p, ok := s.PortOf(declaration, port)
		if !ok {
			continue
		}
		e, ok := q.tables.Endpoints.Get(r, declaration.Object)
		if !ok {
			continue
		}
		plain := plainPorts{peers: q.Peers, r: r, namespace: declaration.Object.Namespace}
		out = slices.Grow(out, len(e.Inline))
		for i := range e.Inline {
			out = append(out, plain.mark(mesh.PortEndpoint{Endpoint: &e.Inline[i], Port: e.Inline[i].Port(p)}))
		}
		for list := range q.besides(r).of(declaration, e.Selector) {
			for _, w := range list.All() {
				out = append(out, plain.mark(mesh.PortEndpoint{Endpoint: &w.Endpoint, Port: w.Endpoint.Port(p)}))
			}
		}
	}
	return withoutRepeats(out, s)
}

// ItselfAt returns the port at which the host of a service is an endpoint itself: some declaration has the port, and neither lists endpoints nor selects
// any. ok is false if there is none.
func (q *Queries) ItselfAt(r *query.Reader, s *Service, port uint32) (number uint32, ok bool) {
	for _, declaration := range s.Declarations {
		p, has := s.PortOf(declaration, port)
		if e, known := q.tables.Endpoints.Get(r, declaration.Object); !has || declaration.Joined || known && len(e.Inline)+len(e.Selector) > 0 {
			continue
		}
		return p.Target(), true
	}
	return 0, false
}

// withoutDraining removes endpoints that only take requests of existing sessions if the service has no sessions. It changes the list.
func withoutDraining(list []mesh.PortEndpoint, s *Service) []mesh.PortEndpoint {
	if s.Session != (mesh.Session{}) {
		return list
	}
	return slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool { return e.Health == mesh.Draining })
}

// besides reads something about the endpoints that a declaration does not list itself: about the endpoints in the
// slices of a Service, about the WorkloadEntries that a selector picks, and about the pods that it picks.
type besides[V any] struct {
	slices          func(service api.Key) V
	workloads, pods func(Selection) V
}

// of yields the values for one declaration with a selector. The pods that a Service selects are in its slices, and a
// headless Service selects no WorkloadEntries.
func (b besides[V]) of(declaration Declaration, selector map[string]string) iter.Seq[V] {
	return func(yield func(V) bool) {
		if declaration.isService() && !yield(b.slices(declaration.Object)) {
			return
		}
		if len(selector) == 0 || declaration.Spec.Headless {
			return
		}
		selection := Select(declaration.Object.Namespace, selector)
		if yield(b.workloads(selection)) && !declaration.isService() {
			yield(b.pods(selection))
		}
	}
}

// withoutRepeats removes repeated endpoints if a Service declares the service: its slices may have an endpoint in common for a
// while. It changes the list.
func withoutRepeats(list []mesh.PortEndpoint, s *Service) []mesh.PortEndpoint {
	if !slices.ContainsFunc(s.Declarations, Declaration.isService) {
		return list
	}
	type address struct {
		cluster, address string
		port             uint32
	}
	seen := make(map[address]bool, len(list))
	return slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool {
		at := address{e.Cluster, e.Address, e.Port}
		repeated := seen[at]
		seen[at] = true
		return repeated
	})
}
