package rules

import (
	"crypto/x509"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Mesh checks the mesh configuration.
func Mesh(m *meshconfig.MeshConfig) []document.Finding {
	c := checker{namespace: m.RootNamespace}
	c.mesh(m)
	c.shapes(nil, m.ProtoReflect())
	return c.Findings()
}

func (c *checker) mesh(m *meshconfig.MeshConfig) {
	at := (*document.Path)(nil)
	c.portOrZero(at.Field("proxyListenPort"), m.ProxyListenPort)
	c.portOrZero(at.Field("proxyInboundListenPort"), m.ProxyInboundListenPort)
	c.portOrZero(at.Field("proxyHttpPort"), m.ProxyHttpPort)
	if n := uint32(max(m.ProxyHttpPort, 0)); mesh.Reserved(n, true) {
		c.warn(at.Field("proxyHttpPort"), "%d is a port that proxies and their agents use themselves: there is no HTTP proxy", n)
	}
	c.trustDomain(at.Field("trustDomain"), m.TrustDomain)
	for i, alias := range m.TrustDomainAliases {
		c.trustDomain(at.Field("trustDomainAliases").At(i), alias)
	}
	for i, data := range m.CaCertificates {
		c.roots(at.Field("caCertificates").At(i), data)
	}
	c.rule(at.Field("rootNamespace"), Label(m.RootNamespace))
	c.exportTo(at.Field("defaultServiceExportTo"), m.DefaultServiceExportTo, true)
	c.exportTo(at.Field("defaultVirtualServiceExportTo"), m.DefaultVirtualServiceExportTo, false)
	c.exportTo(at.Field("defaultDestinationRuleExportTo"), m.DefaultDestinationRuleExportTo, false)
	c.localityLB(at.Field("localityLbSetting"), m.LocalityLbSetting)
	c.zoneAwareLB(at.Field("zoneAwareLbSetting"), m.ZoneAwareLbSetting)
	if m.LocalityLbSetting != nil && m.ZoneAwareLbSetting.GetEnabled().GetValue() && len(m.LocalityLbSetting.Distribute) > 0 {
		c.warn(at.Field("zoneAwareLbSetting"), "localityLbSetting.distribute decides alone; keep one of them")
	}
	for i, s := range m.ServiceSettings {
		for j, h := range s.GetHosts() {
			c.rule(at.Field("serviceSettings").At(i).Field("hosts").At(j), checkWildcard(h))
		}
	}
	if p := m.OutboundTrafficPolicy; p.GetTls() != nil {
		tls := at.Field("outboundTrafficPolicy").Field("tls")
		c.clientTLS(tls, p.Tls)
		if p.Mode != meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
			c.warn(tls, "has no effect without mode ALLOW_ANY_DYNAMIC_DNS")
		}
	}
	c.accessLog(m)
	c.retries(at.Field("defaultHttpRetryPolicy"), m.DefaultHttpRetryPolicy)
	if t := m.DefaultTrafficPolicy; t != nil {
		c.connectionPool(at.Field("defaultTrafficPolicy").Field("connectionPool"), t.ConnectionPool)
		c.outlierDetection(at.Field("defaultTrafficPolicy").Field("outlierDetection"), t.OutlierDetection)
	}
	c.meshTLS(at, "meshMTLS", m.MeshMTLS)
	c.meshTLS(at, "tlsDefaults", m.TlsDefaults)
	c.providers(at.Field("extensionProviders"), m.ExtensionProviders)
	if m.DefaultConfig != nil {
		c.proxyConfig(at.Field("defaultConfig"), m.DefaultConfig)
	}
}

// accessLog checks the settings of the access log.
func (c *checker) accessLog(m *meshconfig.MeshConfig) {
	format := (*document.Path)(nil).Field("accessLogFormat")
	if m.AccessLogFormat != "" && m.AccessLogFile == "" {
		c.warn(format, "has no effect without accessLogFile")
	}
	if reason := CheckAccessLogFormat(m); reason != "" {
		c.warn(format, "%s: the default format is used", reason)
	} else if minor, operator := EnvoyFor(m.AccessLogFormat); operator != "" {
		c.warn(format, "%%%s%% needs Envoy 1.%d: proxies with an older one log in the default format", operator, minor)
	}
}

func (c *checker) portOrZero(p *document.Path, n int32) {
	if n > 0 { // no field may have a negative number: shapes refuses it
		c.rule(p, checkPort(uint32(n)))
	}
}

// roots checks further roots of the mesh. Bad ones are warnings, because they affect no others.
func (c *checker) roots(p *document.Path, data *meshconfig.MeshConfig_CertificateData) {
	if data.GetPem() == "" {
		if data.GetSpiffeBundleUrl() == "" {
			c.warn(p, "says nothing: write certificates into pem")
		}
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(data.GetPem())) {
		c.warn(p.Field("pem"), "there is no PEM certificate in it, so nothing is trusted because of it")
	}
}

func (c *checker) trustDomain(p *document.Path, s string) {
	if s == "" {
		c.fail(p, "a trust domain is needed, for example cluster.local")
		return
	}
	c.rule(p, checkFQDN(s))
}

// backend is the interface that providers with a service have in common.
type backend interface {
	GetService() string
	GetPort() uint32
}

// providers checks extension providers. An invalid one is a warning, because it affects only those that refer to it.
func (c *checker) providers(p *document.Path, providers []*meshconfig.MeshConfig_ExtensionProvider) {
	seen := map[string]int{}
	for i, provider := range providers {
		at := p.At(i)
		if provider.GetName() == "" {
			c.warn(at.Field("name"), "a provider needs a name, or nobody can refer to it")
		} else if first, dup := seen[provider.Name]; dup {
			c.fail(at.Field("name"), "extensionProviders[%d] has the same name; rename one of them", first)
		} else {
			seen[provider.Name] = i
		}
		m := provider.ProtoReflect()
		f := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
		if f == nil {
			c.warn(at, "says nothing of what it provides")
			continue
		}
		if b, ok := m.Get(f).Message().Interface().(backend); ok {
			c.backend(at.Field(f.JSONName()), b)
		}
		if o := provider.GetOpentelemetry(); o != nil && o.Http != nil && o.Grpc != nil {
			c.warn(at.Field("opentelemetry"), "has two transports, http and grpc; keep one of them")
		}
	}
}

func (c *checker) backend(p *document.Path, b backend) {
	service := b.GetService()
	if _, host, ok := strings.Cut(service, "/"); ok {
		service = host
	}
	if reason := checkFQDN(service); reason != "" && !isIP(service) {
		c.warn(p.Field("service"), "%s", reason)
	}
	if reason := checkPort(b.GetPort()); reason != "" {
		c.warn(p.Field("port"), "%s", reason)
	}
}

func (c *checker) proxyConfig(p *document.Path, d *meshconfig.ProxyConfig) {
	for _, f := range []struct{ name, text string }{
		{"configPath", d.ConfigPath}, {"binaryPath", d.BinaryPath},
	} {
		if f.text == "" {
			c.fail(p.Field(f.name), "must not be empty")
		}
	}
	if cluster, ok := d.ClusterName.(*meshconfig.ProxyConfig_ServiceCluster); ok && cluster.ServiceCluster == "" {
		c.fail(p.Field("serviceCluster"), "must not be empty")
	}
	c.rule(p.Field("discoveryAddress"), checkHostPort(d.DiscoveryAddress))
	c.portOrZero(p.Field("proxyAdminPort"), d.ProxyAdminPort)
	c.portOrZero(p.Field("statusPort"), d.StatusPort)
	if d.Concurrency.GetValue() < 0 {
		c.fail(p.Field("concurrency"), "must not be negative, but is %d", d.Concurrency.Value)
	}
	if drain := d.DrainDuration.AsDuration(); drain < time.Second || drain%time.Second != 0 {
		c.fail(p.Field("drainDuration"), "must be whole seconds, 1s at least, not %v", drain)
	}
	for _, f := range []struct{ name, address string }{
		{"statsdUdpAddress", d.StatsdUdpAddress},
		{"envoyMetricsService.address", d.EnvoyMetricsService.GetAddress()},
		{"envoyAccessLogService.address", d.EnvoyAccessLogService.GetAddress()},
		{"tracing.zipkin.address", d.Tracing.GetZipkin().GetAddress()},
		{"tracing.lightstep.address", d.Tracing.GetLightstep().GetAddress()},
		{"tracing.datadog.address", d.Tracing.GetDatadog().GetAddress()},
		{"tracing.openCensusAgent.address", d.Tracing.GetOpenCensusAgent().GetAddress()},
	} {
		// variables such as $(HOST_IP) are known only on the host of the proxy
		if f.address != "" && !strings.Contains(f.address, "$(") {
			c.rule(p.Field(f.name), checkHostPort(f.address))
		}
	}
	if k := d.PrivateKeyProvider; k != nil {
		at := p.Field("privateKeyProvider")
		switch t := k.Provider.(type) {
		case nil:
			c.fail(at, "a provider must be chosen: cryptomb or qat")
		case *meshconfig.PrivateKeyProvider_Cryptomb:
			c.pollDelay(at.Field("cryptomb"), t.Cryptomb)
		case *meshconfig.PrivateKeyProvider_Qat:
			c.pollDelay(at.Field("qat"), t.Qat)
		}
	}
	for i, expression := range d.ProxyStatsMatcher.GetInclusionRegexps() {
		c.rule(p.Field("proxyStatsMatcher").Field("inclusionRegexps").At(i), checkRegex(expression))
	}
}

func (c *checker) pollDelay(p *document.Path, k interface{ GetPollDelay() *durationpb.Duration }) {
	if k.GetPollDelay() == nil {
		c.fail(p.Field("pollDelay"), "is needed")
	}
}
