package rules

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/shape"
)

// judge returns the findings of a spec: one line "error field" or "warning field" for each finding.
func judge(t *testing.T, m proto.Message, spec string) (lines []string, findings []document.Finding) {
	t.Helper()
	v, err := document.Text{Data: []byte(spec)}.Parse()
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	at := (*document.Path)(nil).Field("spec")
	if findings = document.Read(m, v, at, document.Options{NotZero: shape.NotZero}); len(findings) > 0 {
		t.Fatalf("%s: cannot be read: %v", spec, findings)
	}
	about := About{Namespace: "here"}
	switch m := m.(type) {
	case *networking.ServiceEntry:
		findings = ServiceEntry(m, about)
	case *networking.WorkloadEntry:
		findings = WorkloadEntry(m, about)
	case *networking.VirtualService:
		findings = VirtualService(m, about)
	case *networking.Sidecar:
		findings = Sidecar(m, about)
	default:
		t.Fatalf("no rules for %T", m)
	}
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

func run(t *testing.T, message func() proto.Message, cases []ruleCase) {
	t.Helper()
	for _, c := range cases {
		got, findings := judge(t, message(), c.spec)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q\n%v", c.spec, got, c.want, findings)
		}
	}
}

func TestServiceEntry(t *testing.T) {
	service := func(rest string) string {
		return "{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], " + rest + "}"
	}
	run(t, func() proto.Message { return new(networking.ServiceEntry) }, []ruleCase{
		{service("resolution: STATIC, exportTo: [here, there]"), nil},
		{service("exportTo: [., here]"), []string{"error exportTo[1]"}},
		{service("exportTo: ['~']"), nil},
		{service("exportTo: ['~', .]"), []string{"error exportTo"}},
		{service("exportTo: [.., B]"), []string{"error exportTo[0]"}},
		{"{hosts: [a.example.com, A.example.com]}", []string{"warning hosts[1]"}},
		{"{hosts: [a_b, 1.2.3.4, '*.*.com', '*a.b', '*-a.b', '']}", []string{"error hosts[0]", "error hosts[1]", "error hosts[2]", "warning hosts[3]", "warning hosts[4]", "error hosts[5]"}},
		{service("addresses: [10.0.0.0/8, '::1', fe80::1%eth0, 10.0.0.0/99, a]"), []string{"error addresses[2]", "error addresses[3]", "error addresses[4]"}},
		{service("endpoints: [{address: 192.0.2.1}]"), []string{"error endpoints"}},
		{service("resolution: STATIC, endpoints: [{address: 192.0.2.1}], workloadSelector: {labels: {a: b}}"), []string{"error workloadSelector"}},
		{service("resolution: STATIC, workloadSelector: {labels: {a: 'b*', '*': c}}"), []string{"error workloadSelector.labels[*]", "error workloadSelector.labels[a]"}},
		{service("resolution: STATIC, endpoints: [{address: host}, {network: n}, {address: 'unix:///a/'}]"),
			[]string{"error endpoints[0].address", "warning endpoints[1].address", "error endpoints[2].address"}},
		{service("resolution: STATIC, endpoints: [{address: 'unix:///a', ports: {http: 1}}]"), []string{"error endpoints[0].ports"}},
		{service("resolution: STATIC, endpoints: [{address: 192.0.2.1, ports: {other: 1, b_d: 0}, locality: a/b/c/d}]"),
			[]string{"warning endpoints[0].locality", "error endpoints[0].ports[b_d]", "error endpoints[0].ports[other]", "error endpoints[0].ports[b_d]"}},
		{"{hosts: [a.example.com], ports: [{number: 1, name: a}, {number: 2, name: b}], resolution: STATIC, endpoints: [{address: 'unix:///a'}]}",
			[]string{"error endpoints[0].address"}},
		{"{hosts: ['*.example.com'], resolution: DNS}", []string{"error hosts[0]"}},
		{"{hosts: ['*.example.com'], resolution: DNS, endpoints: [{address: a.example.com}]}", nil},
		{"{hosts: [a.example.com], addresses: [192.0.2.1], ports: [{number: 1, name: a, protocol: UDP}, {number: 2, name: b, protocol: hbone}]}",
			[]string{"warning ports[0].protocol", "error ports[1].protocol"}},
		{service("resolution: DYNAMIC_DNS, endpoints: [{address: a}]"), []string{"error endpoints", "error hosts[0]"}},
		{service("resolution: DYNAMIC_DNS, workloadSelector: {}"), []string{"error workloadSelector", "error hosts[0]", "warning workloadSelector"}},
		{"{hosts: [a.b], ports: [{number: 1, name: a, protocol: SMTP}, {number: 2, name: a, protocol: 'HTTP TCP'}, {number: 3, name: a_b, protocol: grpc-web}]}",
			[]string{"error ports[0].protocol", "error ports[1].name", "error ports[1].protocol", "error ports[2].name"}},
		{service("addresses: [" + strings.Repeat("192.0.2.1, ", 257) + "]"), []string{"error addresses"}},
		{"{hosts: [" + strings.Repeat("a", 300) + "]}", []string{"error hosts[0]"}},
		{"{hosts: [a.example.com], resolution: DNS, ports: [{number: 53, name: dns, protocol: UDP}, {number: 15008, name: tunnel, protocol: hbone}]}", []string{"warning ports[0].protocol", "error ports[1].protocol"}},
		{"{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: a, protocol: GRPC-WEB}, {number: 81, name: b, protocol: tls}, {number: 82, name: c}]}", nil},
		{"{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: tcp}, {number: 82, name: c, protocol: REDIS}]}", []string{"warning ports[1].protocol", "warning ports[2].protocol"}},
		{"{hosts: [a.example.com], addresses: [192.0.2.1], resolution: DNS, ports: [{number: 81, name: b, protocol: TCP}]}", nil},
	})
}

// virtualServiceOf returns a VirtualService for a host.
func virtualServiceOf(rest string) string { return "{hosts: [a.example.com], " + rest + "}" }

// httpRoute returns a VirtualService with one HTTP route to a host.
func httpRoute(rest string) string {
	return virtualServiceOf("http: [{route: [{destination: {host: a}}], " + rest + "}]")
}

// routeWithMatch returns a VirtualService with one HTTP route that has matches.
func routeWithMatch(rest string) string { return httpRoute("match: [" + rest + "]") }

func TestVirtualService(t *testing.T) {
	vs, match := virtualServiceOf, routeWithMatch
	run(t, func() proto.Message { return new(networking.VirtualService) }, []ruleCase{
		{"{hosts: [a.b]}", []string{"error spec"}},
		{"{}", []string{"error spec"}},
		{"{gateways: [mesh], tcp: [{route: [{destination: {host: a}}]}]}", []string{"error gateways", "error tcp"}},
		{"{hosts: ['*'], http: [{route: [{destination: {host: a}}]}]}", []string{"error hosts[0]"}},
		{"{hosts: ['*'], gateways: [mesh, a], http: [{route: [{destination: {host: a}}]}]}", []string{"error hosts[0]"}},
		{"{hosts: [a.b, '*.b', A.b, c], http: [{route: [{destination: {host: a}}]}]}", []string{"error hosts[1]", "error hosts[2]"}},
		{"{hosts: [a.b], gateways: [a/b, a/b/c, /b, A.b_c], http: [{route: [{destination: {host: a}}]}]}",
			[]string{"error gateways[1]", "error gateways[2]", "error gateways[3]"}},
		{vs("exportTo: ['~'], http: [{route: [{destination: {host: a}}]}]"), []string{"error exportTo[0]"}},
		{vs("http: [{}]"), []string{"error http[0]"}},
		{vs("http: [{redirect: {uri: /}, rewrite: {uri: /}, fault: {abort: {httpStatus: 500, percentage: {value: 1}}}}]"), []string{"error http[0].fault", "error http[0].rewrite"}},
		{vs("http: [{delegate: {name: a}, route: [{destination: {host: a}}]}]"), []string{"error http[0].delegate"}},
		{vs("http: [{delegate: {namespace: A_}}]"), []string{"warning http[0].delegate.name", "error http[0].delegate.namespace"}},
		{vs("http: [{delegate: {name: A}, match: [{uri: {regex: a}}]}]"), []string{"error http[0].delegate.name"}},
		{vs("http: [{route: [{destination: {host: a}, weight: 0}, {destination: {host: b}}]}]"), []string{"error http[0].route"}},
		{vs("http: [{route: [{destination: {host: a}, weight: 2147483647}, {destination: {host: b}, weight: 2147483647}, {destination: {host: c}, weight: 2}]}]"), []string{"error http[0].route"}},
		{vs("http: [{route: [{destination: {host: a}}]}, {route: [{destination: {host: b}}]}]"), []string{"warning http[1]"}},
		{vs("http: [{match: [{uri: {exact: /a}}], route: [{destination: {host: a}}]}, {match: [{port: 1}, {uri: {exact: /a}}], route: [{destination: {host: b}}]}]"),
			[]string{"warning http[1].match[1]"}},
		{match("{uri: {prefix: ''}}"), nil},
		{match("{method: {prefix: ''}, scheme: {regex: '*'}}"), []string{"error http[0].match[0].scheme.regex", "error http[0].match[0].method.prefix"}},
		{match("{uri: {regex: a}, ignoreUriCase: true}"), []string{"warning http[0].match[0].ignoreUriCase"}},
		{match("{headers: {'': {}, 'a b': {}, ':path': {}, x: {regex: '*'}}, withoutHeaders: {x: {regex: '*'}, y: {regex: '['}}}"),
			[]string{"error http[0].match[0].headers[]", "error http[0].match[0].headers[a b]", "error http[0].match[0].headers[x].regex",
				"error http[0].match[0].withoutHeaders[y].regex"}},
		{match("{headers: {'@request.auth.claims': {}, '@request.auth.claims[a]': {}}}"),
			[]string{"error http[0].match[0].headers[@request.auth.claims]", "error http[0].match[0].headers[@request.auth.claims]",
				"error http[0].match[0].headers[@request.auth.claims[a]]"}},
		{match("{queryParams: {'': {exact: a}, b: {prefix: ''}}, port: 70000, sourceLabels: {a: '!'}, sourceNamespace: A}"),
			[]string{"error http[0].match[0].queryParams[]", "error http[0].match[0].queryParams[b].prefix", "error http[0].match[0].port", "error http[0].match[0].sourceLabels[a]"}},
		{match("{uri: {regex: '" + strings.Repeat("a", 1025) + "'}}"), []string{"error http[0].match[0].uri.regex"}},
		{match("{uri: {regex: '(?i)/a(bc){1,5}'}}"), nil},
	})
}

func TestVirtualServiceActions(t *testing.T) {
	vs, http := virtualServiceOf, httpRoute
	run(t, func() proto.Message { return new(networking.VirtualService) }, []ruleCase{
		{vs("http: [{redirect: {uri: /, prefixRewrite: /}}]"), []string{"error http[0].redirect.prefixRewrite"}},
		{vs("http: [{redirect: {uri: /, redirectCode: 304}}]"), []string{"error http[0].redirect.redirectCode"}},
		{vs("http: [{directResponse: {status: 199}}]"), []string{"error http[0].directResponse.status"}},
		{http("rewrite: {uriRegexRewrite: {match: '('}}"), []string{"error http[0].rewrite.uriRegexRewrite.match", "error http[0].rewrite.uriRegexRewrite.rewrite"}},
		{http("rewrite: {authority: a.b}, headers: {request: {add: {':authority': x}}}"), []string{"error http[0].rewrite.authority"}},
		{http("retries: {retryOn: 5xx}"), []string{"error http[0].retries.attempts"}},
		{http("retries: {attempts: 1, retryOn: '503,reset,999,'}"), []string{"error http[0].retries.retryOn", "error http[0].retries.retryOn"}},
		{http("fault: {delay: {percent: 5, exponentialDelay: 1s}, abort: {http2Error: x, percentage: {}}}"),
			[]string{"error http[0].fault.delay.exponentialDelay", "warning http[0].fault.delay.percent", "error http[0].fault.abort.http2Error"}},
		{http("fault: {delay: {percentage: {value: -1}}, abort: {grpcStatus: UNAVAILABLE, percentage: {value: 1}}}"),
			[]string{"warning http[0].fault.delay", "error http[0].fault.delay.percentage.value"}},
		{http("mirror: {host: b}, mirrors: [{destination: {host: c}}]"), []string{"error http[0].mirrors"}},
		{http("mirror: {host: b}, mirrorPercent: 101"), []string{"warning http[0].mirrorPercent", "error http[0].mirrorPercent"}},
		{http("corsPolicy: {allowOrigin: [a], allowOrigins: [{prefix: ''}], allowMethods: [GET, get, '*'], allowHeaders: ['a b'], maxAge: 1.5s}"),
			[]string{"warning http[0].corsPolicy.allowOrigin", "error http[0].corsPolicy.allowOrigins[0].prefix", "error http[0].corsPolicy.allowMethods[1]",
				"error http[0].corsPolicy.allowHeaders[0]", "error http[0].corsPolicy.maxAge"}},
		{http("headers: {request: {set: {host: a, ':path': b}, remove: [host, ':path', '', a]}, response: {add: {host: a}}}"),
			[]string{"error http[0].headers.request.set[:path]", "error http[0].headers.request.remove[0]", "error http[0].headers.request.remove[1]",
				"error http[0].headers.request.remove[2]", "error http[0].headers.response.add[host]"}},
		{vs("tls: [{match: [], route: []}]"), []string{"error tls[0].match", "error tls[0].route"}},
		{vs("tls: [{match: [{sniHosts: [b.example.com]}], route: [{destination: {host: a}}]}]"), []string{"error tls[0].match[0].sniHosts[0]"}},
		{"{hosts: ['*.example.com'], tls: [{match: [{sniHosts: ['*.b.example.com', '*.com']}], route: [{destination: {host: a}}]}]}", []string{"error tls[0].match[0].sniHosts[1]"}},
		{vs("tcp: [{match: [{sourceSubnet: a, sourceNamespace: B}], route: [{destination: {host: a}, weight: 1}, {destination: {host: '*'}}]}]"),
			[]string{"error tcp[0].match[0].sourceSubnet", "error tcp[0].route[1].destination.host"}},
		{"{hosts: [a.example.com], http: [{redirect: {uri: /}, timeout: 1s, retries: {attempts: 1}, mirror: {host: a}, corsPolicy: {}, headers: {request: {set: {a: b}, remove: [c]}, response: {set: {a: b}}}}]}",
			[]string{"warning http[0].timeout", "warning http[0].retries", "warning http[0].mirror", "warning http[0].headers.request.set", "warning http[0].headers.request.remove"}},
		{"{hosts: [a.example.com], http: [{directResponse: {status: 200}, mirrors: [{destination: {host: a}}], headers: {request: {add: {a: b}}}}]}",
			[]string{"warning http[0].mirrors", "warning http[0].headers.request.add"}},
		{"{hosts: [a.example.com], http: [{delegate: {name: a}, timeout: 1s, headers: {request: {add: {a: b}}}}]}", nil},
		{"{hosts: [a.example.com], http: [{route: [{destination: {host: a}}], mirrorPercentage: {value: 1}, mirrors: [{destination: {host: a}}]}]}", []string{"warning http[0].mirrorPercentage"}},
		{"{hosts: [a.example.com], http: [{route: [{destination: {host: a}}], mirrorPercent: 1}]}", []string{"warning http[0].mirrorPercent", "warning http[0].mirrorPercent"}},
		{"{hosts: [a.example.com], http: [{route: [{destination: {host: a}}], fault: {delay: {fixedDelay: 1s}, abort: {httpStatus: 500}}}]}", []string{"warning http[0].fault.delay", "warning http[0].fault.abort"}},
		{"{hosts: [a.example.com], http: [{route: [{destination: {host: a}}], fault: {delay: {fixedDelay: 1s, percentage: {}}, abort: {httpStatus: 500, percentage: {value: 0}}}}]}", nil},
	})
}

func TestSidecar(t *testing.T) {
	egress := func(rest string) string { return "{egress: [" + rest + "]}" }
	ingress := func(rest string) string { return "{ingress: [{port: {number: 80, protocol: HTTP}, " + rest + "}]}" }
	run(t, func() proto.Message { return new(networking.Sidecar) }, []ruleCase{
		{egress("{hosts: []}"), []string{"error egress[0].hosts"}},
		{egress("{hosts: [a, A/*, ~/*, ~team/a.b, ~./*, ~*/*, a/b_c, a/*.b]}"), []string{"error egress[0].hosts[0]", "error egress[0].hosts[6]"}},
		{egress("{hosts: ['*/*', ./a.b, a/*, here/*]}"), []string{"warning egress[0].hosts[1]", "warning egress[0].hosts[2]", "warning egress[0].hosts[3]"}},
		{egress("{hosts: [a/b.c, a/b.c, ./*, here/x.y]}"), []string{"warning egress[0].hosts[1]", "warning egress[0].hosts[3]"}},
		{egress("{hosts: [./*]}, {hosts: [./*]}"), []string{"error egress[0].port", "error egress[1].port"}},
		{egress("{hosts: [./*], bind: 127.0.0.1}"), []string{"warning egress[0].bind"}},
		{egress("{hosts: [./*], captureMode: NONE}"), []string{"warning egress[0].captureMode"}},
		{egress("{hosts: [./*], port: {number: 80}}, {hosts: [./*], port: {number: 80, protocol: X}}"), []string{"error egress[1].port.protocol", "error egress[1].port"}},
		{egress("{hosts: [./*], port: {number: 80}}, {hosts: [./*], port: {number: 80}, bind: 127.0.0.1}"), nil},
		{egress("{hosts: [./*], port: {number: 1}, bind: 'unix://a', captureMode: IPTABLES}"),
			[]string{"error egress[0].port.number", "error egress[0].captureMode", "error egress[0].bind"}},
		{egress("{hosts: [./*], port: {number: 0, protocol: TCP}, bind: 'unix:///a'}, {hosts: [./*], port: {number: 0, protocol: HTTP}, bind: 'unix:///b'}"), nil},
		{egress("{hosts: [./*], port: {number: 0, protocol: UDP}, bind: 'unix:///a'}"), []string{"warning egress[0].bind"}},
		{"{ingress: [{}, {port: {number: 80}}, {port: {number: 80}, bind: 'unix:///a'}]}", []string{"error ingress[0].port", "error ingress[2].bind", "error ingress[2].port.number"}},
		{ingress("defaultEndpoint: '192.0.2.1:80'"), []string{"error ingress[0].defaultEndpoint"}},
		{ingress("defaultEndpoint: '[::1]:http'"), []string{"error ingress[0].defaultEndpoint"}},
		{ingress("defaultEndpoint: 'unix://@app', tls: {mode: MUTUAL, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2}"),
			[]string{"error ingress[0].tls", "error ingress[0].tls.minProtocolVersion", "error ingress[0].tls.serverCertificate", "error ingress[0].tls.privateKey", "error ingress[0].tls.caCertificates"}},
		{ingress("tls: {mode: SIMPLE, httpsRedirect: true, credentialName: a}"), []string{"error ingress[0].tls", "error ingress[0].tls.httpsRedirect", "error ingress[0].tls.credentialName"}},
		{"{outboundTrafficPolicy: {egressProxy: {host: a}}}", []string{"error outboundTrafficPolicy.egressProxy", "error outboundTrafficPolicy.egressProxy.port"}},
		{"{inboundConnectionPool: {}}", []string{"error inboundConnectionPool"}},
	})
}
