package api

import (
	"slices"
	"strings"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
)

func TestDefaultMesh(t *testing.T) {
	m := DefaultMesh()
	if m.TrustDomain != "cluster.local" || m.RootNamespace != "istio-system" || m.ProxyListenPort != 15001 ||
		m.DefaultConfig.GetServiceCluster() != "istio-proxy" || m.OutboundTrafficPolicy.Mode != meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY ||
		m.ConnectTimeout.AsDuration().Seconds() != 10 || len(m.ExtensionProviders) != 3 {
		t.Errorf("defaults: %v", m)
	}
}

// TestOverlay lays settings over the defaults: given fields count, even if they are zero or empty; the other defaults stay.
func TestOverlay(t *testing.T) {
	m, problems := DecodeMesh("mesh.yaml", []byte(`
enableTracing: false
connect_timeout: 1m30s
default_service_export_to: ["."]
rootNamespace: null
mesh_mTLS: {minProtocolVersion: TLSV1_3}
outboundTrafficPolicy: {}
extensionProviders:
- {name: envoy, envoyFileAccessLog: {path: /dev/null}}
- {name: mine, prometheus: {}}
defaultConfig:
  tracingServiceName: CANONICAL_NAME_ONLY
  proxyMetadata: {A: b}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var names []string
	for _, p := range m.ExtensionProviders {
		names = append(names, p.Name)
	}
	d := m.DefaultConfig
	for what, ok := range map[string]bool{
		"false":      !m.EnableTracing,
		"duration":   m.ConnectTimeout.AsDuration().Seconds() == 90,
		"list":       slices.Equal(m.DefaultServiceExportTo, []string{"."}),
		"null":       m.RootNamespace == "istio-system",
		"odd name":   m.MeshMTLS.MinProtocolVersion == meshconfig.MeshConfig_TLSConfig_TLSV1_3,
		"empty":      m.OutboundTrafficPolicy.Mode == meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY,
		"providers":  slices.Equal(names, []string{"envoy", "mine", "prometheus", "stackdriver"}),
		"replaced":   m.ExtensionProviders[0].GetEnvoyFileAccessLog().GetPath() == "/dev/null",
		"untouched":  m.TrustDomain == "cluster.local" && m.EnableAutoMtls.GetValue(),
		"proxy":      d.StatusPort == 15020 && d.ProxyMetadata["A"] == "b",
		"proxy one":  d.GetTracingServiceName() == meshconfig.ProxyConfig_CANONICAL_NAME_ONLY,
		"no cluster": d.GetServiceCluster() == "",
	} {
		if !ok {
			t.Errorf("%s: %v", what, m)
		}
	}
}

func TestMeshProblems(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n---\nb: 2\n":              "mesh.yaml:2: error: MeshConfig: a mesh configuration is one document; remove the others",
		"[a]":                            "mesh.yaml:1: error: MeshConfig: must be a mapping, not a list",
		"trustDomain: a\ntrustDomain: b": "mesh.yaml:2: error: MeshConfig: trustDomain: given twice, in line 1 as well; remove one",
		"\ndefaultConfig:\n  drainDuration: 100ms": "mesh.yaml:3: error: MeshConfig: defaultConfig.drainDuration: must be whole seconds, 1s at least, not 100ms",
		"connectTimeout: 0s":                       "mesh.yaml:1: error: MeshConfig: connectTimeout: must be 1ms at least, not 0s; remove it for the default",
		"connectTimeout: 10us":                     "mesh.yaml:1: error: MeshConfig: connectTimeout: must be 1ms at least, not 10µs; remove it for the default",
		"connectTimeout: 1500us":                   "mesh.yaml:1: error: MeshConfig: connectTimeout: must be whole milliseconds, not 1.5ms",
		"dnsRefreshRate: 1.0005s":                  "mesh.yaml:1: error: MeshConfig: dnsRefreshRate: must be whole milliseconds, not 1.0005s",
		"protocolDetectionTimeout: 100us":          "mesh.yaml:1: error: MeshConfig: protocolDetectionTimeout: must be whole milliseconds, not 100µs",
		"protocolDetectionTimeout: -1s":            "mesh.yaml:1: error: MeshConfig: protocolDetectionTimeout: must not be negative, but is -1s",
		"protocolDetectionTimeout: 0s":             "",
		"proxyListenPort: 65536":                   "mesh.yaml:1: error: MeshConfig: proxyListenPort: a port is a number from 1 to 65535, not 65536",
		"defaultConfig: {statusPort: -1}":          "mesh.yaml:1: error: MeshConfig: defaultConfig.statusPort: must not be negative, but is -1",
		"defaultConfig: {concurrency: -1}":         "mesh.yaml:1: error: MeshConfig: defaultConfig.concurrency: must not be negative, but is -1",
		"extensionProviders: [{name: a}, {name: a, prometheus: {}}]": "mesh.yaml:1: warning: MeshConfig: extensionProviders[0]: says nothing of what it provides\n" +
			"mesh.yaml:1: error: MeshConfig: extensionProviders[1].name: extensionProviders[0] has the same name; rename one of them",
		"accessLogFile: /dev/stdout\naccessLogFormat: '%PROTOCOL% %NO_SUCH%'":                                                           `mesh.yaml:2: warning: MeshConfig: accessLogFormat: Envoy knows no NO_SUCH, which "%NO_SUCH%" names: the default format is used`,
		"defaultProviders: {accessLogging: [Envoy, nope]}":                                                                              `mesh.yaml:1: warning: MeshConfig: defaultProviders.accessLogging[1]: extensionProviders has no provider "nope": it does nothing; declare it, or correct the name`,
		"extensionProviders: [{name: a, envoyFileAccessLog: {logFormat: {labels: {x: '%NO_SUCH%'}}}}]":                                  `mesh.yaml:1: warning: MeshConfig: extensionProviders[0]: Envoy knows no NO_SUCH, which "%NO_SUCH%" names: the default format is used`,
		"accessLogFile: /dev/stdout\naccessLogFormat: '%REQ%'":                                                                          `mesh.yaml:2: warning: MeshConfig: accessLogFormat: "%REQ%" needs to say of what, like %REQ(NAME)%: the default format is used`,
		"accessLogFile: /dev/stdout\naccessLogFormat: '100% %REQ(X?Y):3%'":                                                              `mesh.yaml:2: warning: MeshConfig: accessLogFormat: "100% %REQ(X?Y):3%" has an unfinished format: write %% for a percent sign: the default format is used`,
		"accessLogFile: /dev/stdout\naccessLogEncoding: JSON\naccessLogFormat: '{\"a\": {\"b\": [\"%START_TIME(%Y)%\", \"%CLOCK%\"]}}'": `mesh.yaml:3: warning: MeshConfig: accessLogFormat: Envoy knows no CLOCK, which "%CLOCK%" names: the default format is used`,
		"accessLogFile: /dev/stdout\naccessLogFormat: '%SPAN_ID%%% %UPSTREAM_TLS_GROUP:7%'":                                             `mesh.yaml:2: warning: MeshConfig: accessLogFormat: %UPSTREAM_TLS_GROUP% needs Envoy 1.39: proxies with an older one log in the default format`,
		"proxyHttpPort: 15021":             `mesh.yaml:1: warning: MeshConfig: proxyHttpPort: 15021 is a port that proxies and their agents use themselves: there is no HTTP proxy`,
		"defaultServiceExportTo: [a, '*']": `mesh.yaml:1: error: MeshConfig: defaultServiceExportTo: "*" excludes other entries; keep either it or them`,
	} {
		m, problems := DecodeMesh("mesh.yaml", []byte(text))
		var got []string
		for _, p := range problems {
			got = append(got, p.String())
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, strings.Join(got, "\n"), want)
		}
		if (m == nil) != Failed(problems) {
			t.Errorf("%q: %v with %v", text, m, problems)
		}
	}
}

// TestUnsupportedMesh: each unsupported field of a mesh configuration has a warning, unless it has its default value.
func TestUnsupportedMesh(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"trustDomain: a\nconnectTimeout: 3s\nenableTracing: false\ndefaultConfig: {concurrency: 2}": nil,
		"proxyListenPort: 15001\ningressClass: istio":                                               nil,
		"\nhboneIdleTimeout: 1s": {"mesh.yaml:2: warning: MeshConfig: hboneIdleTimeout: is not supported yet: ignored; there are no tunnels of the ambient mode here"},
		"discoverySelectors: [{matchLabels: {a: b}}]\ndefaultConfig:\n  statusPort: 1\n  statNameLength: 90\n": {
			"mesh.yaml:4: warning: MeshConfig: defaultConfig.statNameLength: is not supported yet: ignored; Envoy has no such limit",
			"mesh.yaml:1: warning: MeshConfig: discoverySelectors: is not supported yet: ignored; they select namespaces of a cluster, and none is read",
		},
		"outboundTrafficPolicy:\n  mode: REGISTRY_ONLY\n  tls: {mode: SIMPLE, credentialName: a}": {"mesh.yaml:3: warning: MeshConfig: outboundTrafficPolicy.tls.credentialName: sidecars use it only in a DestinationRule with a workloadSelector; add a workloadSelector, or name files in clientCertificate, privateKey and caCertificates"},
		"defaultConfig: {gatewayTopology: {numTrustedProxies: 1}}":                                nil,
		"defaultInboundHttpRetryPolicy: {attempts: 2, perTryTimeout: 1s}":                         nil, // a rule warns
		"trustDomain: [": nil,
	} {
		var got []string
		for _, p := range UnsupportedMesh("mesh.yaml", []byte(text), false) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", text, got, want)
		}
	}
}

// TestDecodeMeshOver checks that the own settings win over shared ones, which win over the defaults, field by field.
func TestDecodeMeshOver(t *testing.T) {
	shared := "trustDomain: shared\nconnectTimeout: 3s\ndefaultConfig: {concurrency: 2, statusPort: 1}\nextensionProviders: [{name: p, zipkin: {service: z, port: 1}}]"
	m, problems := DecodeMeshOver("own.yaml", []byte("trustDomain: own\ndefaultConfig: {statusPort: 2}"), []byte(shared))
	if m == nil {
		t.Fatal(problems)
	}
	if m.GetTrustDomain() != "own" || m.GetConnectTimeout().GetSeconds() != 3 || m.GetRootNamespace() != "istio-system" ||
		m.GetDefaultConfig().GetConcurrency().GetValue() != 2 || m.GetDefaultConfig().GetStatusPort() != 2 || m.GetExtensionProviders()[0].GetName() != "p" {
		t.Errorf("%v", m)
	}
}
