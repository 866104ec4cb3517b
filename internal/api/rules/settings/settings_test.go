package settings

import (
	"slices"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
)

// judge returns the findings of a spec: one line "error field" or "warning field" for each finding.
func judge(t *testing.T, spec string) (lines []string, findings []document.Finding) {
	t.Helper()
	v, err := document.Text{Data: []byte(spec)}.Parse()
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	m := new(meshconfig.MeshConfig)
	if findings = document.Read(m, v, nil, document.Options{NotZero: shape.NotZero}); len(findings) > 0 {
		t.Fatalf("%s: cannot be read: %v", spec, findings)
	}
	findings = Mesh(m)
	for _, f := range findings {
		if f.Reason == "" {
			t.Errorf("%s: %s without reason", spec, f.Field)
		}
		severity := "error "
		if f.Warning {
			severity = "warning "
		}
		lines = append(lines, severity+f.Field)
	}
	return lines, findings
}

type ruleCase struct {
	spec string
	want []string
}

func run(t *testing.T, cases []ruleCase) {
	t.Helper()
	for _, c := range cases {
		got, findings := judge(t, c.spec)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q\n%v", c.spec, got, c.want, findings)
		}
	}
}

func TestMesh(t *testing.T) {
	const proxy = "configPath: /a, binaryPath: /b, discoveryAddress: 'a:1', drainDuration: 45s, proxyAdminPort: 1, statusPort: 2"
	mesh := func(rest string) string {
		return "{proxyListenPort: 1, trustDomain: a, rootNamespace: b, connectTimeout: 1s, defaultConfig: {" + proxy + "}, " + rest + "}"
	}
	run(t, []ruleCase{
		{"{}", []string{"error proxyListenPort", "error trustDomain", "error rootNamespace"}},
		{mesh(""), nil},
		{mesh("trustDomainAliases: [a.b, a_b], proxyHttpPort: -1"), []string{"error trustDomainAliases[1]", "error proxyHttpPort"}},
		{mesh("localityLbSetting: {distribute: [{from: a, to: {a: 100}}]}, zoneAwareLbSetting: {enabled: true}"), []string{"warning zoneAwareLbSetting"}},
		{mesh("defaultTrafficPolicy: {connectionPool: {}, outlierDetection: {consecutiveErrors: 1}}"),
			[]string{"error defaultTrafficPolicy.connectionPool", "warning defaultTrafficPolicy.outlierDetection.consecutiveErrors"}},
		{mesh("meshMTLS: {ecdhCurves: [P-1]}"), []string{"error meshMTLS.ecdhCurves"}},
		{mesh("extensionProviders: [{prometheus: {}}, {name: a, zipkin: {service: ns/a.b, port: 1}}, {name: b, datadog: {service: 1.2.3.4}}]"),
			[]string{"warning extensionProviders[0].name", "warning extensionProviders[2].datadog.port"}},
		{"{proxyListenPort: 1, trustDomain: a, rootNamespace: b, defaultConfig: {proxyAdminPort: 1, statusPort: 2}}", []string{"error defaultConfig.configPath", "error defaultConfig.binaryPath",
			"error defaultConfig.discoveryAddress", "error defaultConfig.drainDuration"}},
		{"{proxyListenPort: 1, trustDomain: a, rootNamespace: b, defaultConfig: {configPath: /a, binaryPath: /b, discoveryAddress: 'a:1', drainDuration: 45s, proxyAdminPort: 1, statusPort: 70000, statsdUdpAddress: a, tracing: {zipkin: {address: '$(HOST_IP):1'}}," +
			" privateKeyProvider: {qat: {pollDelay: 0s}}, proxyStatsMatcher: {inclusionRegexps: ['(']}}}",
			[]string{"error defaultConfig.statusPort", "error defaultConfig.statsdUdpAddress", "error defaultConfig.proxyStatsMatcher.inclusionRegexps[0]",
				"error defaultConfig.privateKeyProvider.qat.pollDelay"}},
	})
}
