package settings

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/api/rules/traffic"
)

func (c *checker) proxyConfig(p *document.Path, d *meshconfig.ProxyConfig) {
	for _, f := range []struct{ name, text string }{
		{"configPath", d.ConfigPath}, {"binaryPath", d.BinaryPath},
	} {
		if f.text == "" {
			c.Fail(p.Field(f.name), "must not be empty")
		}
	}
	if cluster, ok := d.ClusterName.(*meshconfig.ProxyConfig_ServiceCluster); ok && cluster.ServiceCluster == "" {
		c.Fail(p.Field("serviceCluster"), "must not be empty")
	}
	c.Rule(p.Field("discoveryAddress"), syntax.HostPort(d.DiscoveryAddress))
	c.listenPort(p.Field("proxyAdminPort"), d.ProxyAdminPort)
	c.listenPort(p.Field("statusPort"), d.StatusPort)
	if a := d.ControlPlaneAuthPolicy; a != meshconfig.AuthenticationPolicy_NONE && a != meshconfig.AuthenticationPolicy_MUTUAL_TLS {
		c.Fail(p.Field("controlPlaneAuthPolicy"), "must be NONE or MUTUAL_TLS, not %s", a)
	}
	if d.Concurrency.GetValue() < 0 {
		c.Fail(p.Field("concurrency"), "must not be negative, but is %d", d.Concurrency.Value)
	}
	if drain := d.DrainDuration.AsDuration(); drain < time.Second || drain%time.Second != 0 {
		c.Fail(p.Field("drainDuration"), "must be whole seconds, 1s at least, not %v", drain)
	}
	c.collectors(p, d)
	tags := p.Field("tracing").Field("customTags")
	for _, name := range slices.Sorted(maps.Keys(d.Tracing.GetCustomTags())) {
		c.CustomTag(tags.Key(name), name, d.Tracing.CustomTags[name].GetHeader().GetName())
	}
	c.connectionSettings(p.Field("connectionSettings"), d.ConnectionSettings)
	if _, ok := d.ProxyMetadata["ISTIO_META_DNS_AUTO_ALLOCATE"]; ok {
		c.Warn(p.Field("proxyMetadata").Key("ISTIO_META_DNS_AUTO_ALLOCATE"), "is deprecated: addresses are allocated by default; remove it")
	}
	if k := d.PrivateKeyProvider; k != nil {
		at := p.Field("privateKeyProvider")
		switch t := k.Provider.(type) {
		case nil:
			c.Fail(at, "a provider must be chosen: cryptomb or qat")
		case *meshconfig.PrivateKeyProvider_Cryptomb:
			c.pollDelay(at.Field("cryptomb"), t.Cryptomb)
		case *meshconfig.PrivateKeyProvider_Qat:
			c.pollDelay(at.Field("qat"), t.Qat)
		}
	}
	for i, expression := range d.ProxyStatsMatcher.GetInclusionRegexps() {
		c.Rule(p.Field("proxyStatsMatcher").Field("inclusionRegexps").At(i), syntax.Regex(expression))
	}
}

func (c *checker) pollDelay(p *document.Path, k interface{ GetPollDelay() *durationpb.Duration }) {
	if k.GetPollDelay() == nil {
		c.Fail(p.Field("pollDelay"), "is needed")
	}
}

// hostIP is a variable for an address that is known only on the host of the proxy.
const hostIP = "$(HOST_IP)"

// collectors checks the addresses to which proxies report.
func (c *checker) collectors(p *document.Path, d *meshconfig.ProxyConfig) {
	tracing, traced := p.Field("tracing"), d.GetTracing()
	type collector struct {
		at       *document.Path
		address  string
		required bool
	}
	list := []collector{
		{p.Field("statsdUdpAddress"), d.StatsdUdpAddress, false},
		{p.Field("envoyMetricsServiceAddress"), d.EnvoyMetricsServiceAddress, false}, //nolint:staticcheck // deprecated, and still in use
		{p.Field("envoyMetricsService").Field("address"), d.EnvoyMetricsService.GetAddress(), false},
		{p.Field("envoyAccessLogService").Field("address"), d.EnvoyAccessLogService.GetAddress(), false},
		{tracing.Field("openCensusAgent").Field("address"), traced.GetOpenCensusAgent().GetAddress(), false},
	}
	if z := traced.GetZipkin(); z != nil {
		list = append(list, collector{tracing.Field("zipkin").Field("address"), z.Address, true})
	}
	if dog := traced.GetDatadog(); dog != nil {
		list = append(list, collector{tracing.Field("datadog").Field("address"), dog.Address, true})
	}
	if l := traced.GetLightstep(); l != nil {
		list = append(list, collector{tracing.Field("lightstep").Field("address"), l.Address, true})
		if l.AccessToken == "" {
			c.Fail(tracing.Field("lightstep").Field("accessToken"), "is needed")
		}
	}
	for _, one := range list {
		if one.address != "" || one.required {
			c.Rule(one.at, syntax.HostPort(strings.Replace(one.address, hostIP, "192.0.2.1", 1)))
		}
	}
	tls := traced.GetTlsSettings()
	traffic.ClientTLS(c.Checker, tracing.Field("tlsSettings"), tls)
	if name := tls.GetCredentialName(); strings.HasPrefix(name, destination.ConfigMapScheme+c.Namespace+"/") {
		c.Fail(tracing.Field("tlsSettings").Field("credentialName"), "the mesh configuration is in no namespace, so it cannot name the CA of a ConfigMap")
	}
}

// connectionSettings checks limits of connections. Envoy refuses windows that are smaller than the default of HTTP/2.
func (c *checker) connectionSettings(p *document.Path, s *meshconfig.ProxyConfig_ConnectionSettings) {
	limits := append(connection.Numbers(s),
		connection.Number{Field: "listenerConnectionLimit", Value: s.GetListenerConnectionLimit(), Least: 1},
		connection.Number{Field: "globalDownstreamConnectionLimit", Value: s.GetGlobalDownstreamConnectionLimit(), Least: 1})
	for _, n := range limits {
		if n.Value != nil && n.Value.Value < n.Least {
			c.Fail(p.Field(n.Field), "must be %d at least, not %d", n.Least, n.Value.Value)
		}
	}
}

// meshTLS checks the settings of the mesh for TLS.
func (c *checker) meshTLS(p *document.Path, name string, s *meshconfig.MeshConfig_TLSConfig) {
	if name == "meshMTLS" && len(s.GetEcdhCurves()) > 0 {
		c.Fail(p.Field(name).Field("ecdhCurves"), "cannot be chosen within the mesh; set tlsDefaults.ecdhCurves instead")
	} else {
		c.Curves(p.Field(name).Field("ecdhCurves"), s.GetEcdhCurves())
	}
	if s != nil {
		c.meshProtocol(p.Field(name).Field("minProtocolVersion"), s.MinProtocolVersion)
	}
	c.Ciphers(p.Field(name).Field("cipherSuites"), s.GetCipherSuites())
}

// meshProtocol checks the lowest version of TLS.
func (c *checker) meshProtocol(p *document.Path, v meshconfig.MeshConfig_TLSConfig_TLSProtocol) {
	if v != meshconfig.MeshConfig_TLSConfig_TLS_AUTO && v != meshconfig.MeshConfig_TLSConfig_TLSV1_2 && v != meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		c.Fail(p, "must be TLSV1_2 or TLSV1_3, not %s", v)
	}
}
