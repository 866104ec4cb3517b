package why

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// maxServers bounds how many Gateways of one listener are named.
const maxServers = 20

// addReceiver adds what decides about requests at a listener that receives them for a workload or a gateway: policies, and the Gateways that declare it.
func (i *inquiry) addReceiver(listener string) {
	switch {
	case i.class.Gateway:
		i.addServers(listener)
	case listener == envoy.VirtualInbound:
		if by := i.Queries.Services.Peers.Explain(i.r, i.class.Namespace, i.labels(), 0).By; by != (api.Key{}) {
			i.addSource(by, policies.PeerRole, "", 0)
		}
	default:
		return
	}
	i.inboundPolicies()
}

// addServers adds the Gateways with servers at a listener of a gateway.
func (i *inquiry) addServers(listener string) {
	named, more := map[api.Key]bool{}, 0
	served := gateway.ServedOf(i.class)
	for at := range i.Queries.Gateways.Sockets(i.r, served).All() {
		servers, ok := i.Queries.Gateways.ServersAt(i.r, served, at)
		if !ok || !isListenerOf(at, listener) {
			continue
		}
		for _, s := range servers {
			switch {
			case named[s.Gateway]:
			case len(named) < maxServers:
				named[s.Gateway] = true
				i.addSource(s.Gateway, "servers", "", 0)
			default:
				more++
			}
		}
	}
	if more > 0 {
		i.addReason(api.Key{}, "", "%s of other Gateways are at this listener, too; pilotctl get hosts lists them", plural(more, "server"))
	}
}

// isListenerOf reports whether a listener has the name that a socket of gateways gets.
func isListenerOf(at gateway.Socket, listener string) bool {
	if strings.HasPrefix(at.Bind, socketScheme) {
		return listener == at.Bind
	}
	ip, ok := strings.CutSuffix(listener, envoy.ListenerName("", at.Port))
	ip, quic := strings.CutPrefix(ip, envoy.QUICPrefix)
	return ok && quic == at.QUIC && (at.Bind == "" || at.Bind == ip)
}
