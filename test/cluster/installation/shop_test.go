package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// shopManifest is a Deployment that has a proxy if something injects one. %s is its namespace.
const shopManifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %[1]s}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: v1}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: pilot.test/workload:v1
        args: [serve, "--http=:8080"]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`

// namespace makes a namespace with labels. It is removed at the end of the test.
func (u *user) namespace(name string, labels ...string) {
	u.Helper()
	u.kubectl("create", "namespace", name)
	u.Cleanup(func() { u.kubectl("delete", "namespace", name, "--ignore-not-found") })
	u.until("a root in the new namespace", func() bool { return strings.Contains(u.kubectl("get", "configmap", "-n", name), "kube-root-ca.crt") })
	if len(labels) > 0 {
		u.kubectl(append([]string{"label", "namespace", name}, labels...)...)
	}
}

// apply applies a manifest.
func (u *user) apply(manifest string) {
	u.Helper()
	if out, err := u.applied(manifest); err != nil {
		u.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// applied applies a manifest, which may be refused.
func (u *user) applied(manifest string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.c.Kubectl(), "--kubeconfig", u.c.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// deploy makes the shop of a namespace, and waits until it is available.
func (u *user) deploy(namespace string) {
	u.Helper()
	u.apply(fmt.Sprintf(shopManifest, namespace))
	u.rolledOut(namespace, "web")
}

// rolledOut waits until all pods of a Deployment are of its present version, and ready.
func (u *user) rolledOut(namespace, name string) {
	u.Helper()
	u.kubectl("rollout", "status", "deployment/"+name, "-n", namespace, "--timeout", patience.String())
}

// pod is what tests want to know of a pod.
type pod struct {
	Name     string
	Revision string   // of its proxy
	Injected bool     // it has exactly one proxy
	Images   []string // of its containers
}

// pods returns the pods of a namespace that do not end.
func (u *user) pods(namespace string) (all []pod) {
	u.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp *time.Time
				Annotations       map[string]string
			}
			Spec struct {
				Containers, InitContainers []struct{ Name, Image string }
			}
		}
	}
	u.must(json.Unmarshal([]byte(u.kubectl("get", "pods", "-n", namespace, "-o", "json")), &list))
	for _, one := range list.Items {
		if one.Metadata.DeletionTimestamp != nil {
			continue
		}
		p := pod{Name: one.Metadata.Name, Revision: one.Metadata.Annotations["istio.io/rev"]}
		proxies := 0
		for _, c := range append(one.Spec.Containers, one.Spec.InitContainers...) {
			p.Images = append(p.Images, c.Image)
			if c.Name == "istio-proxy" {
				proxies++
			}
		}
		p.Injected = proxies == 1
		all = append(all, p)
	}
	return all
}
