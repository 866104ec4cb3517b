package problem

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// peerAuthentication warns of a policy that selects no workload or that an older policy overrules, and of ports that
// the workloads do not have.
func (f *findings) peerAuthentication() {
	policy, ok := f.q.tables.Peers.Policies.Get(f.r, f.key)
	if !ok {
		return
	}
	if len(policy.Selector) == 0 {
		if by, ok := f.q.services.Peers.Overrules(f.r, f.key); ok {
			f.conflict("policy-overruled", "spec.selector", "%s is older and has no selector either: this policy is not used", by)
		}
		return
	}
	if f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		f.warn("policy-root-selector", "spec.selector", "a policy of the root namespace with a selector selects no workload: this policy is not used; put it into the namespace of the workloads, or remove the selector if it is for the whole mesh")
		return
	}
	if by, ok := f.q.services.Peers.Overrules(f.r, f.key); ok {
		f.conflict("policy-overruled", "spec.selector", "%s is older and selects all workloads that this one selects: this policy is not used", by)
		return
	}
	f.selectorWithoutWorkload("spec.selector", policy.Selector, func(id string) bool {
		_, selected := f.inboundOf(id, policy)
		return selected
	})
	f.policyPorts(policy)
}

// inboundOf returns the ports where the workload of a connected proxy serves. selected is false if a policy does not select it.
func (f *findings) inboundOf(id string, policy *policies.Peer) (ports []proxy.InboundPort, selected bool) {
	p, ok := f.q.tables.Proxies.Get(f.r, id)
	if !ok || p.Role != proxy.Sidecar {
		return nil, false
	}
	served, _ := f.q.services.Workload.Get(f.r, f.q.scope.Workload(p))
	labels := p.Labels
	if served.HasEndpoint {
		labels = served.Labels
	}
	return served.Ports.Items(), mesh.HasAll(labels, policy.Selector)
}

// policyPorts warns of ports of services: a policy must name ports of workloads. Only workloads of connected proxies are known.
func (f *findings) policyPorts(policy *policies.Peer) {
	if policy.MTLS.Ports.Empty() {
		return
	}
	served, meant := map[uint32]bool{}, map[uint32]proxy.InboundPort{}
	checked := 0
	for id := range f.q.tables.ProxiesIn.Group(f.r, f.key.Namespace).All() {
		if checked++; checked > maxChecked {
			return // one of the others may serve the port
		}
		ports, selected := f.inboundOf(string(id), policy)
		if !selected {
			continue
		}
		for _, p := range ports {
			served[p.Number] = true
			if _, known := meant[p.Port]; !known && p.Host != "" {
				meant[p.Port] = p
			}
		}
	}
	for m := range policy.MTLS.Ports.All() {
		at := fmt.Sprintf("spec.portLevelMtls[%d]", m.Port)
		switch p, ok := meant[m.Port]; {
		case served[m.Port] || len(served) == 0:
		case ok:
			f.warn("policy-port", at, "%d is the port of %s, which leads to port %d of the workload: write that; as it is, the mode is only for connections that bypass the service", m.Port, p.Host, p.Number)
		default:
			f.warn("policy-port", at, "no service leads to port %d of the workloads: the mode is for connections that bypass services", m.Port)
		}
	}
}
