package access

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// begins is what a listener knows of a connection by its first bytes.
type begins struct {
	transport string
	protocols []string
}

// listener finds the filter chain of the connection and goes through it.
func (e *evaluation) listener(l *listenerv3.Listener) {
	seen, ok := e.inspect(l)
	if !ok {
		return
	}
	if l.FilterChainMatcher != nil {
		e.stop("the listener chooses its filter chains by a matcher that is not known here")
		return
	}
	chain, why := choose(l, e.Port, seen)
	switch {
	case why != "":
		e.stop(why)
	case chain == nil:
		e.refuse()
	case e.terminate(chain):
		e.network(chain)
	}
}

// stop ends the evaluation: the steps that follow are unknown.
func (e *evaluation) stop(why string) {
	e.decided = true
	e.doubted(why)
}

// refuse ends the evaluation of a connection that no filter chain takes.
func (e *evaluation) refuse() {
	switch {
	case e.TLS == nil:
		e.deny(0, "", "the port takes only TLS, and the client speaks plain text")
	case e.TLS.Identity != "":
		e.deny(0, "", "the port does not take the TLS of clients of the mesh")
	default:
		e.deny(0, "", "the port does not take the TLS of this client")
	}
}

// inspect returns what the listener filters find. ok is false if that is unknown.
func (e *evaluation) inspect(l *listenerv3.Listener) (seen begins, ok bool) {
	seen.transport = "raw_buffer"
	for _, f := range l.ListenerFilters {
		off := e.disabled(f.FilterDisabled)
		config := f.GetTypedConfig()
		switch {
		case off == yes, config.MessageIs(&originaldstv3.OriginalDst{}), config.MessageIs(&originalsrcv3.OriginalSrc{}):
		case off == maybe:
			e.stop(e.because())
			return seen, false
		case config.MessageIs(&tlsinspectorv3.TlsInspector{}):
			if e.TLS != nil {
				seen.transport, seen.protocols = "tls", e.TLS.ALPN
				e.serverName, e.knowsServerName = strings.ToLower(e.TLS.ServerName), e.TLS.HasServerName
			}
		case config.MessageIs(&httpinspectorv3.HttpInspector{}):
			switch {
			case e.TLS != nil || e.TCP:
			case e.HTTP2:
				seen.protocols = []string{"h2c"}
			default:
				seen.protocols = []string{"http/1.1"}
			}
		default:
			e.stop("the listener has a filter that is not known here: " + f.Name)
			return seen, false
		}
	}
	if e.TLS == nil || seen.transport != "tls" {
		e.knowsServerName = true // there is none
	}
	return seen, true
}

// disabled reports whether a listener filter does not look at the connection.
func (e *evaluation) disabled(p *listenerv3.ListenerFilterChainMatchPredicate) truth {
	switch r := p.GetRule().(type) {
	case nil:
		return no
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		return some(r.OrMatch.GetRules(), e.disabled)
	case *listenerv3.ListenerFilterChainMatchPredicate_AndMatch:
		return all(r.AndMatch.GetRules(), e.disabled)
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return not(e.disabled(r.NotMatch))
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return is(r.AnyMatch)
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		port := int32(e.Port)
		return is(r.DestinationPortRange.Start <= port && port < r.DestinationPortRange.End)
	}
	return e.unsure("a filter of the listener looks at some connections only, by a rule that is not known here")
}

// choose returns the filter chain for a connection as Envoy does: first by the port, then by the transport, then by the protocols. It
// never goes back from a narrower match to a wider one, except that chains for all transports or protocols take what no other one
// does. chain is nil if there is none, and why says why the chain is unknown.
func choose(l *listenerv3.Listener, port uint32, seen begins) (chain *listenerv3.FilterChain, why string) {
	for _, c := range l.FilterChains {
		rest, _ := proto.Clone(c.GetFilterChainMatch()).(*listenerv3.FilterChainMatch)
		if rest == nil {
			continue
		}
		rest.DestinationPort, rest.TransportProtocol, rest.ApplicationProtocols = nil, "", nil
		if proto.Size(rest) > 0 {
			return nil, "the filter chain " + c.Name + " matches by something that is not known here"
		}
	}
	list := narrow(l.FilterChains, func(m *listenerv3.FilterChainMatch) bool { return m.GetDestinationPort().GetValue() == port },
		func(m *listenerv3.FilterChainMatch) bool { return m.GetDestinationPort() == nil })
	list = narrow(list, func(m *listenerv3.FilterChainMatch) bool { return m.GetTransportProtocol() == seen.transport },
		func(m *listenerv3.FilterChainMatch) bool { return m.GetTransportProtocol() == "" })
	for _, p := range seen.protocols {
		for _, c := range list {
			if slices.Contains(c.GetFilterChainMatch().GetApplicationProtocols(), p) {
				return c, ""
			}
		}
	}
	for _, c := range list {
		if len(c.GetFilterChainMatch().GetApplicationProtocols()) == 0 {
			return c, ""
		}
	}
	return l.DefaultFilterChain, ""
}

// narrow keeps the chains that match exactly, or else the chains that match all.
func narrow(list []*listenerv3.FilterChain, exactly, anything func(*listenerv3.FilterChainMatch) bool) []*listenerv3.FilterChain {
	for _, fits := range []func(*listenerv3.FilterChainMatch) bool{exactly, anything} {
		var found []*listenerv3.FilterChain
		for _, c := range list {
			if fits(c.GetFilterChainMatch()) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// terminate terminates TLS if the chain does. It reports whether the evaluation continues.
func (e *evaluation) terminate(c *listenerv3.FilterChain) bool {
	if c.TransportSocket == nil {
		return true
	}
	var config tlsv3.DownstreamTlsContext
	if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(&config); err != nil {
		e.stop("the filter chain " + c.Name + " has a transport that is not known here: " + c.TransportSocket.Name)
		return false
	}
	if e.TLS == nil {
		e.deny(0, "", "the port takes only TLS, and the client speaks plain text")
		return false
	}
	common := config.GetCommonTlsContext()
	combined := common.GetCombinedValidationContext()
	asked := common.GetValidationContextType() != nil
	switch {
	case !config.GetRequireClientCertificate().GetValue() && !asked:
		e.peer = &peer{} // Envoy does not ask the client for a certificate
		return true
	case !config.GetRequireClientCertificate().GetValue():
		e.stop("the filter chain " + c.Name + " asks for a certificate and does not require one, which is not known here")
		return false
	case e.TLS.Identity == "":
		e.deny(0, "", "the port takes only TLS with a certificate, and the client has none")
		return false
	case combined.GetValidationContextSdsSecretConfig().GetName() != meshRoots:
		e.stop("it depends on whether " + combined.GetValidationContextSdsSecretConfig().GetName() + " has signed the certificate of the client")
		return false
	}
	return e.trusted(combined.GetDefaultValidationContext())
}

// meshRoots is the name of the secret with the roots of the mesh.
const meshRoots = "ROOTCA"

// trusted verifies the identity of a client with a certificate of the mesh.
func (e *evaluation) trusted(v *tlsv3.CertificateValidationContext) bool {
	if len(v.GetVerifyCertificateSpki())+len(v.GetVerifyCertificateHash()) > 0 || v.GetCrl() != nil {
		e.stop("it depends on the certificate of the client, not only on its identity")
		return false
	}
	fits := yes
	if names := v.GetMatchTypedSubjectAltNames(); len(names) > 0 {
		fits = some(names, func(m *tlsv3.SubjectAltNameMatcher) truth {
			if m.SanType != tlsv3.SubjectAltNameMatcher_URI {
				return no
			}
			return e.text(m.Matcher, e.TLS.Identity)
		})
	}
	switch fits {
	case no:
		e.deny(0, "", "the identity of the client, "+e.TLS.Identity+", is of a trust domain that the workload does not trust")
		return false
	case maybe:
		e.stop(e.because())
		return false
	}
	e.peer = &peer{uris: []string{e.TLS.Identity}}
	return true
}
