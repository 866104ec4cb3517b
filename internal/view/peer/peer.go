// Package peer answers which connections a workload takes: with mutual TLS of the mesh, in plain text, or either.
//
// It owns the precedence of PeerAuthentications. The oldest one that selects the workload decides, then the oldest one of its
// namespace without a selector, then the oldest one of the root namespace. A mode that one does not set is left to the
// next one; the default is PERMISSIVE. A policy of the root namespace with a selector selects nothing, as with Istio.
//
// The modes of a policy with a selector are a facet of a proxy's class (Selected), and the modes of wider policies are
// looked up where they are needed (Wider). So a policy for the whole mesh changes no class. Clients depend on less:
// only on where mutual TLS is switched off (PlainTo).
//
// Everything here is a query or a pure function of rows. The package starts no goroutines.
package peer

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Queries answer questions about PeerAuthentications.
type Queries struct {
	tables *state.Tables
	// wider is the mode of a namespace without regard to policies with a selector.
	wider query.Query[string, mesh.MTLSMode]
	// openness is the part of the policies of a namespace that clients depend on.
	openness query.Query[string, openness]
	// plain are the modes of workloads as far as they matter to clients.
	plain query.Query[workloads, Plain]
}

// openness says whether workloads of a namespace may be without mutual TLS.
type openness struct {
	// off is true if they do not, unless a policy that selects them says otherwise.
	off bool
	// selected is true if such policies matter.
	selected bool
}

// workloads are the workloads of a namespace that have some labels.
type workloads struct {
	namespace string
	labels    mesh.Labels
}

// Plain is the set of ports where workloads take no mutual TLS. Mode is either disabled or permissive, and Ports are the exceptions.
type Plain mesh.MTLS

// At reports whether it is so at a port.
func (p Plain) At(port uint32) bool { return mesh.MTLS(p).At(port) == mesh.MTLSDisabled }

func same[V comparable](a, b V) bool { return a == b }

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	q.wider = query.Define(g, "widerMTLS", same[mesh.MTLSMode], func(r *query.Reader, namespace string) (mesh.MTLSMode, bool) {
		mode, _ := q.decide(r, namespace)
		return mode, true
	})
	q.openness = query.Define(g, "openness", same[openness], func(r *query.Reader, namespace string) (openness, bool) {
		off := q.Wider(r, namespace) == mesh.MTLSDisabled
		return openness{off, off || t.Peers.Opening.Group(r, namespace).Len() > 0}, true
	})
	q.plain = query.Define(g, "plainWorkloads", same[Plain], func(r *query.Reader, w workloads) (Plain, bool) {
		modes := q.Selected(r, w.namespace, w.labels).Within(q.Wider(r, w.namespace))
		return Plain(asSeenByClients(modes)), true
	})
	return q
}

// asSeenByClients replaces all modes that take mutual TLS by one of them.
func asSeenByClients(m mesh.MTLS) mesh.MTLS {
	seen := func(mode mesh.MTLSMode) mesh.MTLSMode {
		if mode == mesh.MTLSDisabled {
			return mode
		}
		return mesh.MTLSPermissive
	}
	ports := map[uint32]mesh.MTLSMode{}
	for p := range m.Ports.All() {
		ports[p.Port] = seen(p.Mode)
	}
	return mesh.MTLSOf(seen(m.Mode), ports)
}

// Wider is the mode of the workloads of a namespace, unless a policy that selects them says otherwise.
func (q *Queries) Wider(r *query.Reader, namespace string) mesh.MTLSMode {
	mode, _ := q.wider.Get(r, namespace)
	return mode
}

// Selected returns the modes of the policy that selects a workload.
func (q *Queries) Selected(r *query.Reader, namespace string, labels mesh.Labels) mesh.MTLS {
	_, policy := q.selecting(r, namespace, labels)
	if policy == nil {
		return mesh.MTLS{}
	}
	return policy.MTLS
}

// PlainTo returns the ports where the workloads of a namespace that have some labels take no mutual TLS.
func (q *Queries) PlainTo(r *query.Reader, namespace string, labels mesh.Labels) Plain {
	open, _ := q.openness.Get(r, namespace)
	if !open.selected {
		return Plain{Mode: mesh.MTLSPermissive}
	}
	plain, _ := q.plain.Get(r, workloads{namespace, labels})
	return plain
}

// Decision is the mode of a workload's port and the policy that decides it.
type Decision struct {
	Mode mesh.MTLSMode
	// By is the policy; the zero key means the default.
	By api.Key
	// Port is true if the policy names the port.
	Port bool
}

// Explain returns the mode of a workload's port with its origin.
func (q *Queries) Explain(r *query.Reader, namespace string, labels mesh.Labels, port uint32) Decision {
	by, policy := q.selecting(r, namespace, labels)
	if policy != nil {
		if mode := policy.MTLS.At(port); mode != mesh.MTLSInherited {
			return Decision{mode, by, mode != policy.MTLS.Mode}
		}
	}
	mode, by := q.decide(r, namespace)
	return Decision{Mode: mode, By: by}
}

// Overrules is the policy that counts instead of another one, for the workloads that the other one selects with exactly its labels,
// or without a selector for the workloads of its namespace. ok is false if the other one counts itself.
func (q *Queries) Overrules(r *query.Reader, k api.Key) (by api.Key, ok bool) {
	policy, found := q.tables.Peers.Policies.Get(r, k)
	if !found {
		return api.Key{}, false
	}
	if len(policy.Selector) > 0 {
		by, _ = q.selecting(r, k.Namespace, mesh.LabelsOf(policy.Selector))
	} else {
		by, _ = q.oldest(r, q.tables.Peers.For.Group(r, k.Namespace), nil)
	}
	return by, by != k
}

// decide returns the mode of a namespace without regard to policies with a selector, and the policy that says so.
func (q *Queries) decide(r *query.Reader, namespace string) (mesh.MTLSMode, api.Key) {
	root := q.tables.RootNamespace(r)
	for _, ns := range []string{namespace, root} {
		by, policy := q.oldest(r, q.tables.Peers.For.Group(r, ns), nil)
		if policy != nil && policy.MTLS.Mode != mesh.MTLSInherited {
			return policy.MTLS.Mode, by
		}
	}
	return mesh.MTLSPermissive, api.Key{}
}

// selecting is the oldest policy that selects a workload; nil if there is none.
func (q *Queries) selecting(r *query.Reader, namespace string, labels mesh.Labels) (api.Key, *policies.Peer) {
	if namespace == q.tables.RootNamespace(r) {
		return api.Key{}, nil
	}
	var first selected.AgeKey
	var best *policies.Peer
	for l := range labels.All() {
		k, p := q.oldest(r, q.tables.Peers.ByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: l}), func(p *policies.Peer) bool {
			return mesh.HasAll(labels, p.Selector)
		})
		if p == nil {
			continue
		}
		if at := (selected.AgeKey{Created: p.Created, Key: k}); best == nil || at.Compare(first) < 0 {
			first, best = at, p
		}
	}
	return first.Key, best
}

// oldest is the first policy of a group that fits. All are tried: a limit would switch encryption off.
func (q *Queries) oldest(r *query.Reader, of omap.Map[selected.AgeKey, omap.Unit], fits func(*policies.Peer) bool) (api.Key, *policies.Peer) {
	for at := range of.All() {
		if p, ok := q.tables.Peers.Policies.Get(r, at.Key); ok && (fits == nil || fits(p)) {
			return at.Key, p
		}
	}
	return api.Key{}, nil
}
