package kubesource

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pilotmesh/pilot/internal/explain/ingresses"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/loop"
)

// served asks the replica what gateways are to serve for a host, as text.
func (r *replica) served(host string) string {
	r.Helper()
	found := make(chan *ingresses.Answer, 1)
	r.must(r.loop.Inspect(r.Context(), func(v *loop.View) {
		found <- ingresses.Ask(why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}, host)
	}))
	a := <-found
	a.Complete()
	var text strings.Builder
	r.must(a.Write(&text))
	return strings.Join(strings.Fields(text.String()), " ")
}

// serves waits until the answer about a host has a text, or does not have it if the text begins with an exclamation mark.
func (r *replica) serves(host, want string) {
	r.Helper()
	want, absent := strings.CutPrefix(strings.ReplaceAll(want, "NS", r.namespace), "!")
	var last string
	r.until(fmt.Sprintf("%s: %t: %s", host, !absent, want), func() bool {
		last = r.served(host)
		return strings.Contains(last, want) != absent
	})
}

const ingressDocuments = `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: %[1]s}
spec: {controller: %[2]s}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one}
spec:
  ingressClassName: %[1]s
  tls: [{hosts: [one.example.com], secretName: one-cert}]
  rules:
  - host: one.example.com
    http: {paths: [{path: %[3]s, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
`

const web = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

// TestIngress follows Ingresses and their class while they come, change and go. The control plane does nothing when others write the status of an
// Ingress.
func TestIngress(t *testing.T) {
	p := on(t)
	p.definitions()
	r := p.replica()
	class := p.namespace
	t.Cleanup(func() { p.kubectl("", "delete", "ingressclass", class, "--ignore-not-found") })
	const ours = "istio.io/ingress-controller"
	p.apply(fmt.Sprintf(ingressDocuments, class, ours, "/a"))
	r.serves("one.example.com", "443 HTTPS secret one-cert for one.example.com Ingress NS/one")
	r.serves("one.example.com", `there is no service "web.NS.svc.cluster.local"`)
	p.apply(web)
	r.serves("one.example.com", "prefix /a web.NS.svc.cluster.local:80 Ingress NS/one")
	p.apply(fmt.Sprintf(ingressDocuments, class, ours, "/b"))
	r.serves("one.example.com", "prefix /b")
	p.apply(strings.Replace(fmt.Sprintf(ingressDocuments, class, ours, "/b"), "metadata: {name: one}", "metadata: {name: two}", 1))
	r.serves("one.example.com", "Ingress NS/two")
	r.problem("has the same path of the host \"one.example.com\": this rule is ignored")
	p.kubectl("", "delete", "ingress", "two")
	r.serves("one.example.com", "!Ingress NS/two")

	// Statuses, annotations and labels that nothing reads.
	before := r.events.Load()
	var cells map[string]int
	r.must(r.loop.Inspect(t.Context(), func(v *loop.View) { cells = maps.Clone(v.Graph.Cost()) }))
	p.kubectl("", "patch", "ingress", "one", "--subresource=status", "--type=merge", `-p={"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`)
	p.kubectl("", "annotate", "ingress", "one", "example.com/note=text")
	p.apply(entry("marker", "", "DNS"))
	r.knows("marker")
	if n := r.events.Load() - before; n != 1 {
		t.Errorf("%d events, want that of the marker only", n)
	}
	r.must(r.loop.Inspect(t.Context(), func(v *loop.View) {
		for name, n := range v.Graph.Cost() {
			if strings.HasPrefix(name, "gateway") && n != cells[name] {
				t.Errorf("%d cells of %s have run", n, name)
			}
		}
	}))

	// The class goes, comes back for another controller, and is gone with its Ingress in the end.
	p.kubectl("", "delete", "ingressclass", class)
	r.serves("one.example.com", fmt.Sprintf("there is no IngressClass %q", class))
	p.apply(fmt.Sprintf(ingressDocuments, class, "example.com/other", "/b"))
	r.serves("one.example.com", `is of the controller "example.com/other"`)
	p.kubectl("", "annotate", "ingress", "one", "kubernetes.io/ingress.class=istio")
	r.serves("one.example.com", "prefix /b web.NS")
	p.kubectl("", "delete", "ingress", "one")
	r.serves("one.example.com", "!Ingress NS/one")
}

// TestIngressVerdicts: the API server refuses the documents that package api refuses, and accepts the documents that the package accepts.
func TestIngressVerdicts(t *testing.T) {
	p := on(t)
	for _, kind := range []string{"ingress", "ingressclass"} {
		archive, err := txtar.ParseFile(filepath.Join("../../../internal/api/testdata/verdicts", kind+".txtar"))
		p.must(err)
		for _, f := range archive.Files {
			head := strings.Fields(f.Name)
			document := strings.ReplaceAll(string(f.Data), "namespace: shop", "namespace: "+p.namespace)
			refused := p.refused(document)
			if want := head[1] == "reject"; (refused != "") != want {
				t.Errorf("%s %s: the verdict of package api is %s; the API server says %q", kind, head[0], head[1], refused)
			}
		}
	}
}

// refused returns why the API server does not create an object; empty if it does.
func (p *place) refused(document string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.c.Kubectl(), "--kubeconfig", p.c.Kubeconfig(), "create", "--dry-run=server", "--validate=strict", "-f", "-")
	cmd.Stdin = strings.NewReader(document)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}
