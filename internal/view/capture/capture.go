// Package capture decides which nodes are ready for the pods of the mesh where a CNI plugin captures their traffic. A new node may have a taint that
// keeps pods away (kube.UncapturedTaint) until the agent of the plugin is ready there.
//
// There is one cell for each node with the taint, and none for other nodes.
//
// The package starts no goroutines.
package capture

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// Node is a node that has the taint and needs it no longer.
type Node struct{ Name string }

// OutputName implements query.Output.
func (n Node) OutputName() string { return n.Name }

// ContentHash implements omap.Value.
func (n Node) ContentHash() omap.Hash { return omap.Sum([]byte(n.Name)) }

// Size implements omap.Value: nodes are not sent to proxies.
func (Node) Size() int { return 0 }

// Nodes are nodes by name.
type Nodes = omap.Map[omap.Name, Node]

// Queries decide about nodes.
type Queries struct {
	// Captured are the nodes of the control plane's own cluster that have the taint and a ready agent, by the namespace of the agents.
	Captured query.Collection[string, Node]

	tables *state.Tables
}

// place is a node, and the namespace of the agents that count.
type place struct {
	namespace string
	node      api.Key
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	tainted := func(r *query.Reader, _ string) omap.Map[api.Key, omap.Unit] {
		return t.Kube.UncapturedIn.Group(r, t.ClusterID())
	}
	at := func(namespace string, k api.Key) place { return place{namespace, k} }
	q.Captured = query.Each(g, "capturedNodes", tainted, query.Define(g, "capturedNode", slices.Equal[[]Node], q.captured), at)
	return q
}

// captured returns the node if an agent of the namespace is ready on it.
func (q *Queries) captured(r *query.Reader, p place) ([]Node, bool) {
	for agent := range q.tables.Kube.AgentsOn.Group(r, state.ClusterNode{Cluster: p.node.Cluster, Node: p.node.Name}).All() {
		if agent.Namespace == p.namespace {
			return []Node{{p.node.Name}}, true
		}
	}
	return nil, false
}
