package config

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// loadBackends reads the backends for spans, statistics and access logs.
func (s *Settings) loadBackends(errs *problems) {
	s.loadTracer(errs)
	s.loadStatsd(errs)
	service := s.Proxy.GetEnvoyMetricsService()
	if former := s.Proxy.GetEnvoyMetricsServiceAddress(); service == nil && former != "" { //nolint:staticcheck // the former field still counts
		service = &meshv1alpha1.RemoteService{Address: former}
	}
	s.Stats.Service = s.remote("envoyMetricsService", service, errs)
	s.AccessLogs = s.remote("envoyAccessLogService", s.Proxy.GetEnvoyAccessLogService(), errs)
}

// loadTracer reads the tracer. The former field for Zipkin counts if there is no other tracer.
func (s *Settings) loadTracer(errs *problems) {
	t := s.Proxy.GetTracing()
	where, address := "", ""
	switch tracer := t.GetTracer().(type) {
	case *meshv1alpha1.Tracing_Zipkin_:
		s.Tracer.Kind, where, address = boot.Zipkin, "tracing.zipkin.address", tracer.Zipkin.GetAddress()
	case *meshv1alpha1.Tracing_Datadog_:
		s.Tracer.Kind, where, address = boot.Datadog, "tracing.datadog.address", tracer.Datadog.GetAddress()
	case *meshv1alpha1.Tracing_Lightstep_:
		s.Tracer.Kind, where, address = boot.OpenTelemetry, "tracing.lightstep.address", tracer.Lightstep.GetAddress()
		s.Tracer.AccessToken = tracer.Lightstep.GetAccessToken()
	case nil:
		if address = s.Proxy.GetZipkinAddress(); address != "" { //nolint:staticcheck // the former field still counts
			s.Tracer.Kind, where = boot.Zipkin, "zipkinAddress"
		}
	default:
		s.warn("tracing: Envoy has no tracer for OpenCensus and Stackdriver any more; send spans to an OpenTelemetry collector instead, by an extension provider of the mesh")
	}
	if s.Tracer.Kind == boot.NoTracer {
		return
	}
	b, err := boot.ParseBackend(address)
	if err != nil {
		errs.add(where, "%w", err)
		return
	}
	s.warn("%s: spans are sent only for listeners that ask for it, and listeners from Pilot's control plane do not yet", where)
	b.TLS = s.clientTLS("tracing.tlsSettings", b.Host, t.GetTlsSettings(), errs)
	s.Tracer.Backend = b
}

// remote returns the backend that a field of ProxyConfig describes.
func (s *Settings) remote(field string, r *meshv1alpha1.RemoteService, errs *problems) boot.Backend {
	if r.GetAddress() == "" {
		return boot.Backend{}
	}
	b, err := boot.ParseBackend(r.GetAddress())
	if err != nil {
		errs.add(field+".address", "%w", err)
		return boot.Backend{}
	}
	b.TLS = s.clientTLS(field+".tlsSettings", b.Host, r.GetTlsSettings(), errs)
	if b.TLS != nil {
		b.TLS.ALPN = []string{"h2"}
	}
	b.KeepAlive = keepAlive(r.GetTcpKeepalive())
	return b
}

// clientTLS returns the TLS settings of Envoy for a backend; nil for plaintext. Without names to verify, the host of the address is verified.
func (s *Settings) clientTLS(where, host string, t *networking.ClientTLSSettings, errs *problems) *envoy.ClientTLS {
	mode := t.GetMode()
	if mode == networking.ClientTLSSettings_DISABLE {
		return nil
	}
	if t.GetCredentialName() != "" {
		errs.add(where+".credentialName", "the bootstrap can refer to files only; write caCertificates, clientCertificate and privateKey")
	}
	out := &envoy.ClientTLS{
		SubjectAltNames: t.GetSubjectAltNames(), SNI: cmp.Or(t.GetSni(), host), InsecureSkipVerify: t.GetInsecureSkipVerify().GetValue(),
		CRL: t.GetCaCrl(), Parameters: s.Certificates.Compliance.Restrict(compliance.Parameters{}),
	}
	if _, err := netip.ParseAddr(out.SNI); err == nil {
		out.SNI = "" // which is a DNS name
	}
	if mode == networking.ClientTLSSettings_ISTIO_MUTUAL {
		out.Mesh = true
		return out
	}
	if len(out.SubjectAltNames) == 0 {
		out.SubjectAltNames = []string{host}
	}
	out.Roots = cmp.Or(t.GetCaCertificates(), envoy.SystemRoots)
	if mode == networking.ClientTLSSettings_MUTUAL {
		if out.Certificate, out.Key = t.GetClientCertificate(), t.GetPrivateKey(); out.Certificate == "" || out.Key == "" {
			errs.add(where, "MUTUAL needs clientCertificate and privateKey")
		}
	}
	return out
}

func keepAlive(k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *corev3.TcpKeepalive {
	if k == nil {
		return nil
	}
	seconds := func(d *durationpb.Duration) *wrapperspb.UInt32Value { return optional(uint32(d.GetSeconds())) }
	return &corev3.TcpKeepalive{KeepaliveProbes: optional(k.GetProbes()), KeepaliveTime: seconds(k.GetTime()), KeepaliveInterval: seconds(k.GetInterval())}
}

// optional is a number, or nil for 0.
func optional(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// lookupTimeout is how long the name of a statsd server may take to be resolved.
const lookupTimeout = 5 * time.Second

// loadStatsd reads the statsd server. Envoy does not resolve the name of such a server, so the agent does. If the name cannot be
// resolved, only the statistics are not sent.
func (s *Settings) loadStatsd(errs *problems) {
	address := s.Proxy.GetStatsdUdpAddress()
	if address == "" {
		return
	}
	host, text, err := net.SplitHostPort(address)
	port, convErr := strconv.ParseUint(text, 10, 16)
	if err != nil || convErr != nil || host == "" || port == 0 {
		errs.add("statsdUdpAddress", "%q is not host:port", address)
		return
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil || len(list) == 0 {
			s.warn("statsdUdpAddress: no statistics are sent, because %q cannot be resolved: %v; start the agent again when it can", host, err)
			return
		}
		ip = slices.MinFunc(list, netip.Addr.Compare) // the same one each time, whatever the order
	}
	s.Stats.Statsd = netip.AddrPortFrom(ip.Unmap(), uint16(port))
}
