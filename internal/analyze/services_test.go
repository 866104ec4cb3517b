package analyze

import (
	"strings"
	"testing"
)

// clusterServices are Services of a cluster, and other objects of that name.
const clusterServices = `
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec:
  clusterIP: 10.0.0.1
  selector: {app: reviews}
  ports: [{name: http, port: 9080}, {name: status, port: 81, appProtocol: kubernetes.io/h2c}]
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop, annotations: {networking.istio.io/exportTo: "."}}, spec: {ports: [{port: 5432}]}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: Service, namespace: shop}}
- {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: knative, namespace: shop}}
`

// clusterRules are rules for them.
const clusterRules = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - match: [{uri: {prefix: /a}}]
    route: [{destination: {host: reviews, subset: v1, port: {number: 9080}}}]
  - match: [{uri: {prefix: /b}}]
    route: [{destination: {host: reviews, port: {number: 80}}}]
  - match: [{uri: {prefix: /c}}]
    route: [{destination: {host: review}}]
  - route: [{destination: {host: knative}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: bank}
spec: {hosts: [reviews.shop.svc.cluster.local], tcp: [{route: [{destination: {host: db.shop.svc.cluster.local}}]}]}
`

// TestServices: routes to Services that are among the documents lead somewhere; their ports and exportTo count, and nothing is said of
// what only a cluster knows.
func TestServices(t *testing.T) {
	a := New()
	a.File("services.yaml", []byte(clusterServices))
	a.File("rules.yaml", []byte(clusterRules))
	var got []string
	for _, p := range a.AllProblems("cluster.local") {
		got = append(got, string(p.Code)+" "+p.Reason)
	}
	want := []string{
		`route-overruled VirtualService bank/reviews goes first`,
		`route-no-port the service "reviews.shop.svc.cluster.local" has no port 80: what is sent there fails; its ports are 81 (status), 9080 (http)`,
		`route-no-host there is no service "review.shop.svc.cluster.local": what is sent there fails; did you mean reviews.shop.svc.cluster.local?`,
		`route-no-host there is no service "knative.shop.svc.cluster.local": what is sent there fails`,
		`route-wrong-protocol all ports of the hosts are declared to speak HTTP or TLS: these rules do nothing; declare a port TCP, or write rules for http or tls`,
		`route-not-exported the service "db.shop.svc.cluster.local" is not exported to namespace "bank": what is sent there from there fails; add the namespace to exportTo of the service`,
		`kind-unsupported "ConfigMap" is a kind of Kubernetes`,
		`kind-unsupported "Service" is in the unknown group "serving.knative.dev"`,
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case i >= len(want):
			t.Errorf("too much: %s", got[i])
		case !strings.HasPrefix(got[i], want[i]):
			t.Errorf("%d: %s\nwant %s", i, got[i], want[i])
		}
	}
}
