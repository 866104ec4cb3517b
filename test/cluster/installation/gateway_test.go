package installation

import (
	"context"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// edgeManifest is a Gateway for the gateway that pilotctl installs, with its route, and a pod outside the mesh that sends requests to it.
const edgeManifest = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: shop, namespace: shop}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec:
  hosts: ["*"]
  gateways: [shop]
  http: [{route: [{destination: {host: web}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: outside, namespace: edge}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, image: "pilot.test/workload:v1", args: [serve, "--http=:8080"], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
`

// TestGateway: a gateway is installed, serves requests from outside the mesh, is upgraded, and goes without the control plane.
func TestGateway(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Namespace("edge")
	u.Done("install", "-f", u.Values)
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.Deploy("shop")
	u.Until("the root of the mesh in the namespace", func() bool {
		return strings.Contains(u.Kubectl("get", "configmaps", "-n", "edge"), "istio-ca-root-cert")
	})
	before := u.Objects()

	gateway := []string{"--chart", "pilot-gateway", "--name", "istio-ingress", "-n", "edge"}
	u.Refused(1, "there is no such installation of pilotctl in the namespace edge to upgrade", append([]string{"upgrade"}, gateway...)...)
	u.Refused(2, "the chart pilot-gateway has no value service.typ", append([]string{"install", "--set", "service.typ=ClusterIP"}, gateway...)...)
	u.Done(append([]string{"install", "--set", "service.type=ClusterIP,autoscaling.enabled=false"}, gateway...)...)
	t.Cleanup(func() { u.Run(append([]string{"uninstall"}, gateway...)...) })
	u.Apply(edgeManifest)
	u.Until("an answer through the gateway", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), operator.Patience)
		defer cancel()
		out, err := u.Tried(ctx, "exec", "-n", "edge", "outside", "-c", "app", "--", "/proc/1/exe", "call", "-o=answers", "--fresh", "http://istio-ingress.edge")
		return err == nil && strings.Contains(out, `"host":"istio-ingress.edge"`) && strings.Contains(out, "spiffe://cluster.local/ns/edge/sa/istio-ingress")
	})
	if out, code := u.Free("get", "hosts"); code != 0 || !strings.Contains(out, "shop/shop") {
		t.Errorf("pilotctl get hosts: exit code %d\n%s", code, out)
	}

	u.Done(append([]string{"upgrade", "--set", "replicaCount=2"}, gateway...)...)
	if n := u.Kubectl("get", "deployment/istio-ingress", "-n", "edge", "-o", "jsonpath={.status.availableReplicas}"); n != "2" {
		t.Errorf("%s replicas after the upgrade", n)
	}
	if kind := u.Kubectl("get", "service/istio-ingress", "-n", "edge", "-o", "jsonpath={.spec.type}"); kind != "ClusterIP" {
		t.Errorf("the upgrade has taken a value of the installation back: the Service is of the type %s", kind)
	}

	u.Kubectl("delete", "pod/outside", "-n", "edge")
	u.Kubectl("delete", "gateway/shop", "virtualservice/shop", "-n", "shop")
	u.Done(append([]string{"uninstall"}, gateway...)...)
	u.Unchanged(before)
	u.Refused(1, "there is no installation of pilotctl", append([]string{"uninstall"}, gateway...)...)
}
