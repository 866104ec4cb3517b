package why

import (
	"fmt"
	"slices"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// InboundKind is the kind of a question about connections to a port of the workload. The name is the number of the port.
const InboundKind = "inbound"

// inbound answers a question about connections to a port of the workload.
func (i *inquiry) inbound() error {
	n, err := strconv.ParseUint(i.answer.Name, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is no port; ask for the number of a port of the workload", i.answer.Name)
	}
	port := uint32(n)
	if i.class.Gateway {
		i.addReason(api.Key{}, "", "a gateway has no workload")
		return nil
	}
	for r := range i.State.Layers(resource.Listener).All() {
		m, err := r.Proto()
		l, ok := m.(*listenerv3.Listener)
		if err != nil || !ok || l.TrafficDirection != envoy.Inbound {
			continue
		}
		if found := chainsFor(reply.InboundChains(l), port); len(found) > 0 {
			i.answer.Chains = append(i.answer.Chains, found...)
			i.addFound(r, "")
		}
	}
	i.inboundMode(port)
	i.inboundPolicies()
	i.inboundService(port)
	return nil
}

// chainsFor are the chains that connections to a port may meet.
func chainsFor(all []reply.Chain, port uint32) (list []reply.Chain) {
	own := slices.ContainsFunc(all, func(c reply.Chain) bool { return c.Port == port })
	for _, c := range all {
		if own && c.Port == port || !own && c.Port == 0 {
			list = append(list, c)
		}
	}
	return list
}

// inboundMode adds the mode of mutual TLS, and who decided about it.
func (i *inquiry) inboundMode(port uint32) {
	d := i.Queries.Services.Peers.Explain(i.r, i.class.Namespace, i.labels(), port)
	i.answer.Mode = d.Mode.String()
	switch {
	case d.By == (api.Key{}):
		i.addReason(d.By, "", "mutual TLS of the mesh is %s, the default", d.Mode)
	case d.Port:
		i.addReason(d.By, "", "mutual TLS of the mesh is %s on port %d", d.Mode, port)
	default:
		i.addReason(d.By, "", "mutual TLS of the mesh is %s", d.Mode)
	}
	if d.By != (api.Key{}) {
		i.addSource(d.By, policies.PeerRole, "", 0)
	}
	if i.class.NoCertificate && d.Mode != mesh.MTLSDisabled {
		i.addReason(api.Key{}, "", "the proxy has no certificate of the mesh: it takes plain text where both are allowed, and refuses all connections where mutual TLS is required")
	}
}

// labels are the labels by which policies select the workload.
func (i *inquiry) labels() mesh.Labels {
	served, _ := i.Queries.Services.Workload.Get(i.r, i.Queries.Scope.Workload(i.proxy))
	if served.HasEndpoint {
		return served.Labels
	}
	return i.proxy.Labels
}

// inboundService says what declares the port.
func (i *inquiry) inboundService(port uint32) {
	var in proxy.InboundPort
	for p := range i.class.Inbound.All() {
		if p.Number == port {
			in = p
		}
	}
	switch {
	case in.Number == 0:
		i.addReason(api.Key{}, "", "nothing declares port %d: connections are passed through", port)
	case in.Host != "":
		i.addReason(api.Key{}, "", "port %d of %s leads here, as %s", in.Port, in.Host, in.Protocol)
	default:
		i.addReason(i.class.Sidecar, "", "an ingress listener of the Sidecar declares it, as %s", in.Protocol)
	}
}
