package policies

import (
	"maps"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Peer is a PeerAuthentication: which connections workloads take.
type Peer struct {
	Created int64
	// Selector selects workloads of its namespace. If it is empty, the policy is for all of them, or in the root namespace for the whole mesh.
	Selector map[string]string
	MTLS     mesh.MTLS
}

// Peers are the tables of PeerAuthentications.
type Peers struct {
	Policies store.Table[api.Key, *Peer]
	// For lists the policies of a namespace without a selector. ByLabel lists the others by the first label of their selector. Both
	// list the oldest first.
	For     store.Index[string, selected.AgeKey]
	ByLabel store.Index[selected.LabelIn, selected.AgeKey]
	// Opening lists the policies with a selector of a namespace that switch mutual TLS off, for all ports or for some.
	Opening store.Index[string, selected.AgeKey]
}

// PeerRole is the role of a PeerAuthentication for a workload, in explanations.
const PeerRole = "mutual TLS"

// Define defines the tables in a store.
func (p *Peers) Define(db *store.DB) {
	p.Policies = store.NewTable[api.Key, *Peer](db, "peerPolicies", (*Peer).equal)
	p.Policies.SetRole(PeerRole)
	p.For = store.NewIndex(p.Policies, "peerPoliciesFor", func(k api.Key, p *Peer, add func(string, selected.AgeKey)) {
		if len(p.Selector) == 0 {
			add(k.Namespace, selected.AgeKey{Created: p.Created, Key: k})
		}
	})
	p.ByLabel = store.NewIndex(p.Policies, "peerPoliciesByLabel", func(k api.Key, p *Peer, add func(selected.LabelIn, selected.AgeKey)) {
		if labels := mesh.SortedLabels(p.Selector); len(labels) > 0 {
			add(selected.LabelIn{Namespace: k.Namespace, Label: labels[0]}, selected.AgeKey{Created: p.Created, Key: k})
		}
	})
	p.Opening = store.NewIndex(p.Policies, "openingPeerPolicies", func(k api.Key, p *Peer, add func(string, selected.AgeKey)) {
		if len(p.Selector) > 0 && p.MTLS.Has(mesh.MTLSDisabled) {
			add(k.Namespace, selected.AgeKey{Created: p.Created, Key: k})
		}
	})
}

func (p *Peer) equal(o *Peer) bool {
	return p.Created == o.Created && p.MTLS == o.MTLS && maps.Equal(p.Selector, o.Selector)
}

// Split writes the row of a PeerAuthentication.
func (p *Peers) Split(tx *store.Txn, o *api.Object, spec *security.PeerAuthentication) {
	ports := map[uint32]mesh.MTLSMode{}
	for port, m := range spec.PortLevelMtls {
		ports[port] = mtlsMode(m)
	}
	p.Policies.Set(tx, o.Key, &Peer{
		Created: o.Created.UnixMicro(), Selector: spec.Selector.GetMatchLabels(), MTLS: mesh.MTLSOf(mtlsMode(spec.Mtls), ports),
	})
}

func mtlsMode(m *security.PeerAuthentication_MutualTLS) mesh.MTLSMode {
	switch m.GetMode() {
	case security.PeerAuthentication_MutualTLS_PERMISSIVE:
		return mesh.MTLSPermissive
	case security.PeerAuthentication_MutualTLS_STRICT:
		return mesh.MTLSStrict
	case security.PeerAuthentication_MutualTLS_DISABLE:
		return mesh.MTLSDisabled
	case security.PeerAuthentication_MutualTLS_UNSET:
	}
	return mesh.MTLSInherited
}
