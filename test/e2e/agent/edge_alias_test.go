package agent

import (
	"fmt"
	"net/http"
	"testing"
)

// aliasMesh leads a host to a Service of type ExternalName, which is another name for web. Its port is the port of web.
const aliasMesh = `apiVersion: v1
kind: Service
metadata: {name: alias, namespace: shop}
spec: {type: ExternalName, externalName: %[1]s}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: alias, namespace: shop}
spec:
  hosts: [%[2]s]
  gateways: [edge]
  http: [{route: [{destination: {host: alias, port: {number: %[3]d}}}]}]
`

// TestEdgeExternalName: a route of a gateway may lead to a Service of type ExternalName, which is another name for a service. While it is a name for nothing,
// requests fail; when it is a name for a service, they are answered.
func TestEdgeExternalName(t *testing.T) {
	e := newEdge(t, nil, []string{"alias"})
	mesh := func(external string) {
		if _, err := e.Write("alias.yaml", fmt.Sprintf(aliasMesh, external, edgeHost("alias"), e.port)); err != nil {
			t.Fatal(err)
		}
	}
	mesh("missing.shop.svc.cluster.local")
	e.serves(edgeHost("alias"), http.StatusServiceUnavailable)
	mesh(webHost)
	e.serves(edgeHost("alias"), http.StatusOK)
	e.unrejected()
}
