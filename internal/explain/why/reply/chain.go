package reply

import (
	"fmt"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

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
