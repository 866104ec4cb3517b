package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/peer"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// InboundKind is the kind of a question about connections to a port of the workload. The name is the number of the port.
const InboundKind = "inbound"

// Chain is a filter chain of an inbound listener: which connections it takes and what becomes of them.
type Chain struct {
	Listener string `json:"listener"`
	// Port is the port of the connections; 0 for all that have no chain of their own.
	Port uint32 `json:"port,omitempty"`
	// Takes says which connections the chain takes, and ALPN lists the protocols: the client must offer one of them.
	Takes string   `json:"takes"`
	ALPN  []string `json:"alpn,omitempty"`
	// TLS says whose certificate is asked for if TLS is terminated.
	TLS string `json:"tls,omitempty"`
	// HTTP is true if requests are routed, and false if bytes are forwarded. To is the cluster.
	HTTP bool   `json:"http"`
	To   string `json:"to"`
}

// String describes the chain in a line.
func (c Chain) String() string {
	port := "any other port"
	if c.Port != 0 {
		port = fmt.Sprintf("port %d", c.Port)
	}
	parts := []string{port, c.Takes}
	if len(c.ALPN) > 0 {
		parts = append(parts, "ALPN "+strings.Join(c.ALPN, " "))
	}
	if c.TLS != "" {
		parts = append(parts, c.TLS)
	}
	what := "TCP"
	if c.HTTP {
		what = "HTTP"
	}
	return strings.Join(parts, ", ") + " -> " + what + " " + c.To
}

// InboundChains returns the filter chains of an inbound listener in order, except the chain that refuses connections to the proxy itself.
func InboundChains(l *listenerv3.Listener) (list []Chain) {
	all := l.FilterChains
	if l.DefaultFilterChain != nil {
		all = append(slices.Clone(all), l.DefaultFilterChain)
	}
	for _, fc := range all {
		m := fc.GetFilterChainMatch()
		c := Chain{Listener: l.Name, Port: m.GetDestinationPort().GetValue(), Takes: takes(m)}
		if m.GetTransportProtocol() == "tls" {
			c.ALPN = m.GetApplicationProtocols()
		}
		if l.Name != envoy.VirtualInbound {
			c.Port = l.GetAddress().GetSocketAddress().GetPortValue()
		} else if fc.GetName() == envoy.InboundBlackhole {
			continue
		}
		c.TLS = terminates(fc)
		c.HTTP, c.To = leadsTo(fc)
		list = append(list, c)
	}
	return list
}

// takes says which connections a match is for, by how they begin.
func takes(m *listenerv3.FilterChainMatch) string {
	switch {
	case m.GetTransportProtocol() == "tls":
		return "TLS"
	case len(m.GetApplicationProtocols()) > 0:
		return "plain HTTP"
	case m.GetTransportProtocol() == "raw_buffer":
		return "plain text"
	}
	return "everything"
}

// terminates says how a chain terminates TLS; "" if it does not.
func terminates(fc *listenerv3.FilterChain) string {
	var tls tlsv3.DownstreamTlsContext
	if fc.TransportSocket == nil || fc.TransportSocket.GetTypedConfig().UnmarshalTo(&tls) != nil {
		return ""
	}
	combined := tls.GetCommonTlsContext().GetCombinedValidationContext()
	switch {
	case combined == nil:
		return "terminated"
	case combined.GetValidationContextSdsSecretConfig().GetName() == "ROOTCA":
		return "mutual TLS of the mesh"
	}
	return "terminated, with a client certificate"
}

// leadsTo returns the cluster of a chain, and whether it is HTTP.
func leadsTo(fc *listenerv3.FilterChain) (http bool, cluster string) {
	for _, f := range fc.Filters {
		var manager hcmv3.HttpConnectionManager
		var forward tcpv3.TcpProxy
		switch config := f.GetTypedConfig(); {
		case config.MessageIs(&manager) && config.UnmarshalTo(&manager) == nil:
			for _, host := range manager.GetRouteConfig().GetVirtualHosts() {
				for _, route := range host.Routes {
					return true, route.GetRoute().GetCluster()
				}
			}
		case config.MessageIs(&forward) && config.UnmarshalTo(&forward) == nil:
			return false, forward.GetCluster()
		}
	}
	return false, ""
}

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
		if found := chainsFor(InboundChains(l), port); len(found) > 0 {
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
func chainsFor(all []Chain, port uint32) (list []Chain) {
	own := slices.ContainsFunc(all, func(c Chain) bool { return c.Port == port })
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
		i.addSource(d.By, peer.Role, "", 0)
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
