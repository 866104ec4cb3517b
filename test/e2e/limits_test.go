package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// limit is a field that Envoy bounds: $ in the spec is replaced by the value.
type limit struct {
	name, kind, spec string
	// largest is the largest value that Envoy accepts, and beyond the next one that it does not accept.
	largest, beyond string
}

func limits() []limit {
	text := func(n int) string { return strings.Repeat("a", n) }
	const (
		longest, over = "9223372035s", "9223372036s"
		cookie        = "{host: a.example.com, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: c, ttl: 1s, attributes: [{name: a, value: $}]}}}}}"
		destination   = "hosts: [a.example.com], http: [{route: [{destination: {host: a.example.com}}]"
		socket        = "{hosts: [b.example.com], ports: [{number: 8080, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 'unix://$'}]}"
	)
	return []limit{
		{"timeout of a route", "VirtualService", "{" + destination + ", timeout: $}]}", longest, over},
		{"timeout per try", "VirtualService", "{" + destination + ", retries: {attempts: 2, perTryTimeout: $}}]}", longest, over},
		{"delay", "VirtualService", "{" + destination + ", fault: {delay: {fixedDelay: $, percentage: {value: 10}}}}]}", longest, over},
		{"idle connections", "DestinationRule", "{host: a.example.com, trafficPolicy: {connectionPool: {tcp: {idleTimeout: $}}}}", longest, over},
		{"interval of outlier detection", "DestinationRule", "{host: a.example.com, trafficPolicy: {outlierDetection: {interval: $}}}", longest, over},
		{"header of a request", "VirtualService", "{" + destination + ", headers: {request: {set: {a: $}}}}]}", text(16384), text(16385)},
		{"server name", "DestinationRule", "{host: a.example.com, trafficPolicy: {tls: {mode: SIMPLE, sni: $}}}", text(255), text(256)},
		{"server name within the mesh", "DestinationRule", "{host: a.example.com, trafficPolicy: {tls: {mode: ISTIO_MUTUAL, sni: $}}}", text(255), text(256)},
		{"characters of a server name", "DestinationRule", "{host: a.example.com, trafficPolicy: {tls: {mode: SIMPLE, sni: $}}}", `"a b"`, `"a\0"`},
		{"attribute of a cookie", "DestinationRule", cookie, text(16384), text(16385)},
		{"characters of a cookie", "DestinationRule", cookie, `"a b"`, `"a\nb"`},
		{"path of a socket", "ServiceEntry", socket, "/" + text(106), "/" + text(107)},
		{"abstract socket", "ServiceEntry", socket, "@" + text(106), "@" + text(107)},
		{"namespace of a policy", "AuthorizationPolicy", "{rules: [{from: [{source: {namespaces: [$]}}]}]}", text(16384), text(40000)},
		{"host of a policy", "AuthorizationPolicy", "{rules: [{to: [{operation: {hosts: ['*$']}}]}]}", text(16383), text(40000)},
		{"path template of a policy", "AuthorizationPolicy", "{rules: [{to: [{operation: {paths: ['/{*}$']}}]}]}", "/" + text(16379), "/" + text(40000)},
	}
}

// TestLimits: the check of a document accepts the largest value that Envoy accepts, and refuses values beyond, which Envoy rejects.
func TestLimits(t *testing.T) {
	for _, l := range limits() {
		t.Run(l.name, func(t *testing.T) {
			largest, problems := limitObject(t, l, l.largest)
			if api.Failed(problems) {
				t.Errorf("the largest value is refused: %v", problems)
			}
			if refused := judgeObject(t, largest); refused != "" {
				t.Errorf("the largest value: %.600s", refused)
			}
			beyond, problems := limitObject(t, l, l.beyond)
			if !api.Failed(problems) {
				t.Error("the check of the document accepts a value beyond the limit")
			}
			if refused := judgeObject(t, beyond); !strings.Contains(refused, "refuses") {
				t.Error("Envoy accepts a value beyond the limit, so the limit is too low")
			}
		})
	}
}

// TestEmptyKeySet: a rule whose set of keys is empty verifies no token, and Envoy accepts the listener.
func TestEmptyKeySet(t *testing.T) {
	o, problems := limitObject(t, limit{kind: "RequestAuthentication", spec: "{jwtRules: [{issuer: me, jwks: '$'}]}"}, `{"keys":[]}`)
	if refused := judgeObject(t, o); api.Failed(problems) || refused != "" {
		t.Errorf("refused: %v %.600s", problems, refused)
	}
}

// limitObject decodes an object with a value, and checks it.
func limitObject(t *testing.T, l limit, value string) (*api.Object, []api.Problem) {
	t.Helper()
	group := "networking.istio.io/v1"
	if l.kind == "AuthorizationPolicy" || l.kind == "RequestAuthentication" {
		group = "security.istio.io/v1"
	}
	doc := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: limit, namespace: shop}, spec: %s}", group, l.kind, strings.ReplaceAll(l.spec, "$", value))
	decoded := api.Decode("limit.yaml", []byte(doc))
	if len(decoded) != 1 || decoded[0].Object == nil {
		t.Fatalf("%.300s: no object: %v", doc, decoded)
	}
	return decoded[0].Object, append(decoded[0].Problems, api.Validate(decoded[0].Object)...)
}

// judgeObject returns why Envoy refuses a mesh with an object, whether Pilot's check accepts the object or not; empty if Envoy accepts it.
func judgeObject(t *testing.T, o *api.Object) string {
	t.Helper()
	w := meshtest.New(t)
	w.Apply(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: shop}, spec: {hosts: [a.example.com],
  location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}}`)
	w.Put(o)
	v := &verdict{T: t}
	accepted(v, t.TempDir(), classState(t, w, "REDIRECT", "shop"))
	return v.refused
}
