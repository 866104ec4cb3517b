package traffic_test

import (
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
)

// judge returns the findings of a spec: one line "error field" or "warning field" for each finding.
func judge(t *testing.T, spec string) (lines []string, findings []document.Finding) {
	t.Helper()
	v, err := document.Text{Data: []byte(spec)}.Parse()
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	m := new(networking.DestinationRule)
	if findings = document.Read(m, v, (*document.Path)(nil).Field("spec"), document.Options{NotZero: shape.NotZero}); len(findings) > 0 {
		t.Fatalf("%s: cannot be read: %v", spec, findings)
	}
	findings = rules.DestinationRule(m, rules.About{Namespace: "here"})
	for _, f := range findings {
		if f.Reason == "" {
			t.Errorf("%s: %s without reason", spec, f.Field)
		}
		severity := "error "
		if f.Warning {
			severity = "warning "
		}
		lines = append(lines, severity+strings.TrimPrefix(f.Field, "spec."))
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

func TestDestinationRule(t *testing.T) {
	rule := func(rest string) string { return "{host: a.example.com, " + rest + "}" }
	policy := func(rest string) string { return rule("trafficPolicy: {" + rest + "}") }
	lb := func(rest string) string { return policy("loadBalancer: {" + rest + "}, outlierDetection: {}") }
	run(t, []ruleCase{
		{"{host: '*.example.com', exportTo: ['~']}", []string{"error exportTo[0]"}},
		{rule("subsets: [{name: a}, {name: a}, {name: a_b, trafficPolicy: {}}]"),
			[]string{"error subsets[1].name", "error subsets[2].name", "error subsets[2].trafficPolicy"}},
		{rule("workloadSelector: {matchLabels: {a: b}}, exportTo: [here]"), nil},
		{policy("tunnel: {protocol: GET, targetHost: '*', targetPort: 0}"),
			[]string{"error trafficPolicy.tunnel.protocol", "error trafficPolicy.tunnel.targetHost", "error trafficPolicy.tunnel.targetPort"}},
		{policy("tunnel: {targetHost: 192.0.2.1, targetPort: 80}"), nil},
		{policy("portLevelSettings: [{tls: {}}, {port: {}, tls: {}}, {port: {number: 1}, tls: {}}, {port: {number: 1}, tls: {mode: MUTUAL}}]"),
			[]string{"error trafficPolicy.portLevelSettings[0].port", "error trafficPolicy.portLevelSettings[1].port.number", "warning trafficPolicy.portLevelSettings[3].port",
				"error trafficPolicy.portLevelSettings[3].tls.clientCertificate", "error trafficPolicy.portLevelSettings[3].tls.privateKey"}},
		{policy("connectionPool: {}"), []string{"error trafficPolicy.connectionPool"}},
		{policy("connectionPool: {http: {h2UpgradePolicy: UPGRADE, useClientProtocol: true, idleTimeout: 0s}, tcp: {connectTimeout: 0s, tcpKeepalive: {time: 1us}}}"),
			[]string{"error trafficPolicy.connectionPool.http.useClientProtocol", "error trafficPolicy.connectionPool.tcp.connectTimeout", "error trafficPolicy.connectionPool.tcp.tcpKeepalive.time", "error trafficPolicy.connectionPool.http.idleTimeout"}},
		{policy("outlierDetection: {consecutiveErrors: 1, consecutiveLocalOriginFailures: 1, outlierDetectionHttpErrorCodes: [99, 500]}"),
			[]string{"warning trafficPolicy.outlierDetection.consecutiveErrors", "error trafficPolicy.outlierDetection.consecutiveLocalOriginFailures",
				"error trafficPolicy.outlierDetection.outlierDetectionHttpErrorCodes[0]"}},
		{policy("retryBudget: {percent: 101, budgetInterval: 0s}"), []string{"error trafficPolicy.retryBudget.percent"}},
		{lb("consistentHash: {}"), []string{"warning trafficPolicy.loadBalancer.consistentHash"}},
		{lb("consistentHash: {httpCookie: {ttl: 0s, attributes: [{value: a}]}, ringHash: {minimumRingSize: 9000000}}"),
			[]string{"error trafficPolicy.loadBalancer.consistentHash.httpCookie.name", "error trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].name",
				"warning trafficPolicy.loadBalancer.consistentHash.ringHash.minimumRingSize"}},
		{lb(`consistentHash: {httpHeaderName: ""}`), []string{"error trafficPolicy.loadBalancer.consistentHash.httpHeaderName"}},
		{lb(`consistentHash: {httpHeaderName: ":path"}`), nil},
		{lb(`consistentHash: {httpQueryParameterName: "a\r\n"}`), []string{"error trafficPolicy.loadBalancer.consistentHash.httpQueryParameterName"}},
		{lb("consistentHash: {useSourceIp: true, maglev: {tableSize: 65536}}"), []string{"error trafficPolicy.loadBalancer.consistentHash.maglev.tableSize"}},
		{lb("consistentHash: {useSourceIp: true, maglev: {tableSize: 65537}}"), nil},
		{lb("simple: RANDOM, warmup: {duration: 1s, aggression: -1}"), []string{"warning trafficPolicy.loadBalancer.warmup", "error trafficPolicy.loadBalancer.warmup.aggression"}},
		{lb("localityLbSetting: {}, zoneAwareLbSetting: {minClusterSize: 0}"),
			[]string{"error trafficPolicy.loadBalancer.zoneAwareLbSetting", "error trafficPolicy.loadBalancer.zoneAwareLbSetting.minClusterSize"}},
		{lb("localityLbSetting: {distribute: [{from: a, to: {a/*: 60, a/b: 40}}], failoverPriority: [x]}"),
			[]string{"warning trafficPolicy.loadBalancer.localityLbSetting.failoverPriority", "error trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[a/b]"}},
		{lb("localityLbSetting: {distribute: [{from: a/b, to: {a: 100}}, {from: a/*, to: {'*/a': 100}}, {from: a//b, to: {c: 100}}]}"),
			[]string{"error trafficPolicy.loadBalancer.localityLbSetting.distribute[1].from", "error trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to[*/a]",
				"error trafficPolicy.loadBalancer.localityLbSetting.distribute[2].from"}},
		{lb("localityLbSetting: {failoverPriority: [a, a=b, 'c d']}"),
			[]string{"warning trafficPolicy.loadBalancer.localityLbSetting.failoverPriority[1]", "warning trafficPolicy.loadBalancer.localityLbSetting.failoverPriority[2]"}},
		{lb("zoneAwareLbSetting: {failover: [{from: a}]}"), []string{"error trafficPolicy.loadBalancer.zoneAwareLbSetting.failover[0].to"}},
		{policy("tls: {mode: MUTUAL, credentialName: a, privateKey: b}"), []string{"error trafficPolicy.tls.credentialName"}},
		{policy("tls: {mode: SIMPLE, credentialName: configmap://here, caCertificates: b}"), []string{"error trafficPolicy.tls.credentialName", "error trafficPolicy.tls.credentialName"}},
		{policy("tls: {mode: ISTIO_MUTUAL, sni: a.b, subjectAltNames: [c]}"), nil},
		{policy("tls: {mode: ISTIO_MUTUAL, clientCertificate: a, caCrl: b, insecureSkipVerify: true}"), []string{"warning trafficPolicy.tls.clientCertificate", "warning trafficPolicy.tls.caCrl", "warning trafficPolicy.tls.insecureSkipVerify"}},
		{policy("tls: {mode: SIMPLE, clientCertificate: a, privateKey: b, sni: c, caCertificates: d, caCrl: e, subjectAltNames: [f]}"), []string{
			"warning trafficPolicy.tls.clientCertificate", "warning trafficPolicy.tls.privateKey"}},
		{policy("tls: {mode: SIMPLE, insecureSkipVerify: true, subjectAltNames: [f], sni: c}"), []string{"error trafficPolicy.tls.insecureSkipVerify"}},
		{policy("tls: {mode: MUTUAL, clientCertificate: a, privateKey: b, sni: c, caCertificates: d, caCrl: e, subjectAltNames: [f]}"), nil},
		{policy("tls: {mode: DISABLE}"), nil},
		{policy("tls: {clientCertificate: a, privateKey: b, caCertificates: c, caCrl: d, credentialName: e, subjectAltNames: [f], sni: g}"), []string{
			"warning trafficPolicy.tls.clientCertificate", "warning trafficPolicy.tls.privateKey", "warning trafficPolicy.tls.caCertificates",
			"warning trafficPolicy.tls.caCrl", "warning trafficPolicy.tls.credentialName", "warning trafficPolicy.tls.subjectAltNames", "warning trafficPolicy.tls.sni"}},
		{policy("portLevelSettings: [{port: {number: 80}, tls: {insecureSkipVerify: true}}]"), []string{"warning trafficPolicy.portLevelSettings[0].tls.insecureSkipVerify"}},
	})
}
