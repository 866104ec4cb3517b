package operator

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

// Namespace makes a namespace with labels. It is removed at the end of the test.
func (u *User) Namespace(name string, labels ...string) {
	u.Helper()
	u.Kubectl("create", "namespace", name)
	u.Cleanup(func() { u.Kubectl("delete", "namespace", name, "--ignore-not-found") })
	u.Until("a root in the new namespace", func() bool { return strings.Contains(u.Kubectl("get", "configmap", "-n", name), "kube-root-ca.crt") })
	if len(labels) > 0 {
		u.Kubectl(append([]string{"label", "namespace", name}, labels...)...)
	}
}

// Apply applies a manifest.
func (u *User) Apply(manifest string) {
	u.Helper()
	if out, err := u.Applied(manifest); err != nil {
		u.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// Applied applies a manifest, which may be refused.
func (u *User) Applied(manifest string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.C.Kubectl(), "--kubeconfig", u.C.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Deploy makes the shop of a namespace, and waits until it is available.
func (u *User) Deploy(namespace string) {
	u.Helper()
	u.Apply(fmt.Sprintf(shopManifest, namespace))
	u.RolledOut(namespace, "web")
}

// RolledOut waits until all pods of a Deployment are of its present version, and ready.
func (u *User) RolledOut(namespace, name string) {
	u.Helper()
	u.Kubectl("rollout", "status", "deployment/"+name, "-n", namespace, "--timeout", Patience.String())
}

// Pod is a pod, with the fields that tests look at.
type Pod struct {
	Name     string
	Revision string   // of its proxy
	Injected bool     // it has exactly one proxy
	Images   []string // of its containers
}

// Pods returns the pods of a namespace that do not end.
func (u *User) Pods(namespace string) (all []Pod) {
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
	u.Must(json.Unmarshal([]byte(u.Kubectl("get", "pods", "-n", namespace, "-o", "json")), &list))
	for _, one := range list.Items {
		if one.Metadata.DeletionTimestamp != nil {
			continue
		}
		p := Pod{Name: one.Metadata.Name, Revision: one.Metadata.Annotations["istio.io/rev"]}
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
