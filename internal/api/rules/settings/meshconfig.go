// Package settings has the rules of the configurations that are no objects: of the mesh configuration, and of the mesh networks. They have the
// form of the rules of objects, which are in package rules.
package settings

import (
	"cmp"
	"crypto/x509"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/api/rules/traffic"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Mesh checks the mesh configuration.
func Mesh(m *meshconfig.MeshConfig) []document.Finding {
	c := newChecker(m.RootNamespace)
	c.mesh(m)
	shape.Check(&c.Report, nil, m.ProtoReflect())
	return c.Report.Findings()
}

// checker checks one configuration.
type checker struct{ *check.Checker }

func newChecker(namespace string) checker { return checker{&check.Checker{Namespace: namespace}} }

func (c *checker) mesh(m *meshconfig.MeshConfig) {
	at := (*document.Path)(nil)
	c.listenPort(at.Field("proxyListenPort"), m.ProxyListenPort)
	c.connectTimeout(at.Field("connectTimeout"), m.ConnectTimeout)
	c.refresh(at.Field("dnsRefreshRate"), m.DnsRefreshRate)
	c.portOrZero(at.Field("proxyInboundListenPort"), m.ProxyInboundListenPort)
	d := mesh.DefaultCapturePorts()
	if in := cmp.Or(m.ProxyInboundListenPort, int32(d.Inbound)); in == cmp.Or(m.ProxyListenPort, int32(d.Outbound)) {
		c.Fail(at.Field("proxyInboundListenPort"), "%d is the port for outbound connections, too (proxyListenPort); set another one", in)
	}
	c.portOrZero(at.Field("proxyHttpPort"), m.ProxyHttpPort)
	if n := uint32(max(m.ProxyHttpPort, 0)); mesh.Reserved(n, true) {
		c.Warn(at.Field("proxyHttpPort"), "%d is a port that proxies and their agents use themselves: there is no HTTP proxy", n)
	}
	c.trustDomain(at.Field("trustDomain"), m.TrustDomain)
	for i, alias := range m.TrustDomainAliases {
		c.trustDomain(at.Field("trustDomainAliases").At(i), alias)
	}
	for i, data := range m.CaCertificates {
		c.roots(at.Field("caCertificates").At(i), data)
	}
	c.Rule(at.Field("rootNamespace"), syntax.Label(m.RootNamespace))
	c.ExportTo(at.Field("defaultServiceExportTo"), m.DefaultServiceExportTo, true)
	c.ExportTo(at.Field("defaultVirtualServiceExportTo"), m.DefaultVirtualServiceExportTo, false)
	c.ExportTo(at.Field("defaultDestinationRuleExportTo"), m.DefaultDestinationRuleExportTo, false)
	traffic.LocalityLB(c.Checker, at.Field("localityLbSetting"), m.LocalityLbSetting)
	traffic.ZoneAwareLB(c.Checker, at.Field("zoneAwareLbSetting"), m.ZoneAwareLbSetting)
	if m.LocalityLbSetting != nil && m.ZoneAwareLbSetting.GetEnabled().GetValue() && len(m.LocalityLbSetting.Distribute) > 0 {
		c.Warn(at.Field("zoneAwareLbSetting"), "localityLbSetting.distribute decides alone; keep one of them")
	}
	for i, s := range m.ServiceSettings {
		for j, h := range s.GetHosts() {
			c.Rule(at.Field("serviceSettings").At(i).Field("hosts").At(j), syntax.Wildcard(h))
		}
	}
	if p := m.OutboundTrafficPolicy; p.GetTls() != nil {
		tls := at.Field("outboundTrafficPolicy").Field("tls")
		traffic.ClientTLS(c.Checker, tls, p.Tls)
		if p.Mode != meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
			c.Warn(tls, "has no effect without mode ALLOW_ANY_DYNAMIC_DNS")
		}
	}
	c.accessLog(m)
	c.Retries(at.Field("defaultHttpRetryPolicy"), m.DefaultHttpRetryPolicy)
	c.inboundRetries(at.Field("defaultInboundHttpRetryPolicy"), m.DefaultInboundHttpRetryPolicy)
	c.namespaceSelectors(m)
	if t := m.DefaultTrafficPolicy; t != nil {
		traffic.ConnectionPool(c.Checker, at.Field("defaultTrafficPolicy").Field("connectionPool"), t.ConnectionPool)
		traffic.OutlierDetection(c.Checker, at.Field("defaultTrafficPolicy").Field("outlierDetection"), t.OutlierDetection)
	}
	c.meshTLS(at, "meshMTLS", m.MeshMTLS)
	c.meshTLS(at, "tlsDefaults", m.TlsDefaults)
	c.providers(at.Field("extensionProviders"), m.ExtensionProviders)
	c.defaultProviders(at.Field("defaultProviders"), m)
	if m.DefaultConfig != nil {
		c.proxyConfig(at.Field("defaultConfig"), m.DefaultConfig)
	}
}

// refresh checks how often names are resolved. Without a value, or with 0, the default counts.
func (c *checker) refresh(p *document.Path, d *durationpb.Duration) {
	if d != nil && d.AsDuration() != 0 && d.AsDuration() <= time.Millisecond {
		c.Fail(p, "%s is too short: Envoy takes more than 1ms; write seconds, such as 60s", d.AsDuration())
	}
}

// logFile checks the path of a file for logs. Envoy refuses each listener if it cannot open the file.
func (c *checker) logFile(p *document.Path, path string) {
	switch last := path[strings.LastIndexByte(path, '/')+1:]; {
	case strings.Contains(path, "\x00"):
		c.Fail(p, "has a NUL character, which no path has; remove it")
	case path != "" && (last == "" || last == "." || last == ".."):
		c.Fail(p, "%s is a directory; write the path of a file, such as /dev/stdout", document.Quote(path))
	}
}

// accessLog checks the settings of the access log.
func (c *checker) accessLog(m *meshconfig.MeshConfig) {
	c.logFile((*document.Path)(nil).Field("accessLogFile"), m.AccessLogFile)
	format := (*document.Path)(nil).Field("accessLogFormat")
	if reason := syntax.CheckAccessLogFormat(m); reason != "" {
		c.Warn(format, "%s: the default format is used", reason)
	} else if minor, operator := syntax.EnvoyFor(m.AccessLogFormat); operator != "" {
		c.Warn(format, "%%%s%% needs Envoy 1.%d: proxies with an older one log in the default format", operator, minor)
	}
}

// listenPort checks a port that has a default, so that it is 0 only if that is written.
func (c *checker) listenPort(p *document.Path, n int32) {
	if n >= 0 { // no field may have a negative number: package shape refuses it
		c.Port(p, uint32(n))
	}
}

// portOrZero checks a port that may be left out.
func (c *checker) portOrZero(p *document.Path, n int32) {
	if n > 0 { // no field may have a negative number: package shape refuses it
		c.Rule(p, syntax.Port(uint32(n)))
	}
}

// roots checks further roots of the mesh. Bad ones are warnings, because they affect no others.
func (c *checker) roots(p *document.Path, data *meshconfig.MeshConfig_CertificateData) {
	if from := data.GetSpiffeBundleUrl(); from != "" {
		if u, err := url.Parse(from); err != nil || !strings.EqualFold(u.Scheme, "https") || u.Host == "" {
			c.Warn(p.Field("spiffeBundleUrl"), "%s is not an address of HTTPS, such as https://spire.example.com/bundle, so nothing is trusted because of it", document.Quote(from))
		}
		return
	}
	if data.GetPem() == "" {
		c.Warn(p, "says nothing: write certificates into pem, or an address into spiffeBundleUrl")
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(data.GetPem())) {
		c.Warn(p.Field("pem"), "there is no PEM certificate in it, so nothing is trusted because of it")
	}
}

func (c *checker) trustDomain(p *document.Path, s string) {
	if s == "" {
		c.Fail(p, "a trust domain is needed, for example cluster.local")
		return
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if !syntax.IsLabel(part, true) {
			c.Fail(p, "%s is not a trust domain: its part %s is not a DNS label", document.Quote(s), document.Quote(part))
			return
		}
	}
}

// maxConnectTimeout is the longest time to wait for a connection.
const maxConnectTimeout = time.Hour

func (c *checker) connectTimeout(p *document.Path, t *durationpb.Duration) {
	if d := t.AsDuration(); d > maxConnectTimeout {
		c.Fail(p, "must be %v at most, not %v", maxConnectTimeout, d)
	}
}

// inboundRetries checks the retries of sidecars towards their applications.
func (c *checker) inboundRetries(p *document.Path, r *networking.HTTPRetry) {
	c.Retries(p, r)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"perTryTimeout", r.GetPerTryTimeout() != nil}, {"retryRemoteLocalities", r.GetRetryRemoteLocalities() != nil},
		{"retryIgnorePreviousHosts", r.GetRetryIgnorePreviousHosts() != nil},
	} {
		if f.set {
			c.Warn(p.Field(f.name), "has no effect on retries towards the application; remove it")
		}
	}
}

// namespaceSelectors checks the selectors of namespaces and services.
func (c *checker) namespaceSelectors(m *meshconfig.MeshConfig) {
	at := (*document.Path)(nil)
	for i, s := range m.DiscoverySelectors {
		c.labelSelector(at.Field("discoverySelectors").At(i), s)
	}
	for i, s := range m.ServiceScopeConfigs {
		p := at.Field("serviceScopeConfigs").At(i)
		c.labelSelector(p.Field("namespaceSelector"), s.GetNamespaceSelector())
		c.labelSelector(p.Field("servicesSelector"), s.GetServicesSelector())
	}
	for i, policy := range m.GetServiceEntryVisibility().GetPolicies() {
		rules := at.Field("serviceEntryVisibility").Field("policies").At(i).Field("matchingRules")
		for j, rule := range policy.MatchingRules {
			c.labelSelector(rules.At(j).Field("namespaceSelector"), rule.GetNamespaceSelector())
		}
	}
}

// labelSelector checks a selector of the form that Kubernetes has.
func (c *checker) labelSelector(p *document.Path, s *meshconfig.LabelSelector) {
	for _, key := range slices.Sorted(maps.Keys(s.GetMatchLabels())) {
		c.Rule(p.Field("matchLabels").Key(key), syntax.WorkloadLabel(key, s.MatchLabels[key]))
	}
	for i, e := range s.GetMatchExpressions() {
		at := p.Field("matchExpressions").At(i)
		c.Rule(at.Field("key"), syntax.LabelKey(strings.ToLower(e.GetKey())))
		switch e.GetOperator() {
		case "In", "NotIn":
			if len(e.Values) == 0 {
				c.Fail(at.Field("values"), "the operator %s needs values", e.Operator)
			}
		case "Exists", "DoesNotExist":
			if len(e.Values) > 0 {
				c.Fail(at.Field("values"), "the operator %s takes no values; remove them", e.Operator)
			}
		default:
			c.Fail(at.Field("operator"), "must be In, NotIn, Exists or DoesNotExist, not %s", document.Quote(e.GetOperator()))
		}
		for j, v := range e.GetValues() {
			c.Rule(at.Field("values").At(j), syntax.LabelValue(v))
		}
	}
}

// backend is the interface that providers with a service have in common.
type backend interface {
	GetService() string
	GetPort() uint32
}

// providers checks extension providers. An invalid one is a warning, because it affects only objects that refer to it.
func (c *checker) providers(p *document.Path, providers []*meshconfig.MeshConfig_ExtensionProvider) {
	seen := map[string]int{}
	for i, provider := range providers {
		at := p.At(i)
		if provider.GetName() == "" {
			c.Warn(at.Field("name"), "a provider needs a name, or nothing can refer to it")
		} else if first, dup := seen[provider.Name]; dup {
			c.Fail(at.Field("name"), "extensionProviders[%d] has the same name; rename one of them", first)
		} else {
			seen[provider.Name] = i
		}
		m := provider.ProtoReflect()
		f := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
		if f == nil {
			c.Warn(at, "says nothing of what it provides")
			continue
		}
		if b, ok := m.Get(f).Message().Interface().(backend); ok {
			c.backend(at.Field(f.JSONName()), b)
		}
		c.providerDetails(at, provider)
	}
}

// defaultProviders checks that the providers exist that are used where no Telemetry names any.
func (c *checker) defaultProviders(p *document.Path, m *meshconfig.MeshConfig) {
	d := m.GetDefaultProviders()
	for _, use := range []struct {
		field string
		names []string
	}{{"accessLogging", d.GetAccessLogging()}, {"metrics", d.GetMetrics()}, {"tracing", d.GetTracing()}} {
		for i, name := range use.names {
			if !slices.ContainsFunc(m.ExtensionProviders, func(o *meshconfig.MeshConfig_ExtensionProvider) bool { return strings.EqualFold(o.GetName(), name) }) {
				c.Warn(p.Field(use.field).At(i), "extensionProviders has no provider %s: it does nothing; declare it, or correct the name", document.Quote(name))
			}
		}
	}
}

// providerDetails checks the fields of single kinds of providers.
func (c *checker) providerDetails(at *document.Path, provider *meshconfig.MeshConfig_ExtensionProvider) {
	if o := provider.GetOpentelemetry(); o != nil && o.Http != nil && o.Grpc != nil {
		c.Warn(at.Field("opentelemetry"), "has two transports, http and grpc; keep one of them")
	}
	for _, format := range syntax.LogFormats(provider) {
		if reason := syntax.LogFormat(format); reason != "" {
			c.Warn(at, "%s: the default format is used", reason)
		}
	}
	c.logFile(at.Field("envoyFileAccessLog").Field("path"), provider.GetEnvoyFileAccessLog().GetPath())
	if provider.GetSds() != nil && provider.GetSds().Name == "" {
		c.Warn(at.Field("sds").Field("name"), "is needed: credentialName: sds://NAME names the provider by it")
	}
	if l := provider.GetLightstep(); l != nil && l.AccessToken == "" { //nolint:staticcheck // deprecated, and still in use
		c.Warn(at.Field("lightstep").Field("accessToken"), "is needed")
	}
	if a := provider.GetEnvoyExtAuthzGrpc(); a != nil {
		c.statusOnError(at.Field("envoyExtAuthzGrpc").Field("statusOnError"), a.StatusOnError)
	}
	if a := provider.GetEnvoyExtAuthzHttp(); a != nil {
		p := at.Field("envoyExtAuthzHttp")
		c.statusOnError(p.Field("statusOnError"), a.StatusOnError)
		if _, err := url.Parse(a.PathPrefix); a.PathPrefix != "" && (err != nil || a.PathPrefix[0] != '/') {
			c.Warn(p.Field("pathPrefix"), "%s is not the beginning of a path; write one with a slash first", document.Quote(a.PathPrefix))
		}
	}
}

// envoyStatuses are the statuses that Envoy can answer with, one by one or as ranges.
const envoyStatuses = "100 200-208 226 300-305 307-308 400-417 421-424 426 428-429 431 500-508 510-511"

// statusOnError checks the status of an answer, which is written as text.
func (c *checker) statusOnError(p *document.Path, text string) {
	if text == "" {
		return
	}
	if text == "0" {
		c.Fail(p, "0 is no status; write 403, or leave it out")
		return
	}
	status, err := strconv.Atoi(text)
	for one := range strings.FieldsSeq(envoyStatuses) {
		low, high, ranged := strings.Cut(one, "-")
		if !ranged {
			high = low
		}
		first, _ := strconv.Atoi(low)
		last, _ := strconv.Atoi(high)
		if err == nil && first <= status && status <= last {
			return
		}
	}
	c.Warn(p, "%s is no status that Envoy has: 403 is used; write the number of an HTTP status", document.Quote(text))
}

func (c *checker) backend(p *document.Path, b backend) {
	if reason := syntax.BackendService(b.GetService()); reason != "" {
		c.Warn(p.Field("service"), "%s", reason)
	}
	if reason := syntax.Port(b.GetPort()); reason != "" {
		c.Warn(p.Field("port"), "%s", reason)
	}
}
