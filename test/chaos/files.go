package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// namespaces are the namespaces of the objects and of the Envoys.
var namespaces = []string{"shop", "bank", "istio-system"}

// files draws what the configuration directory holds. Objects are few, so that files and rules collide.
type files struct{ names []string }

func newFiles() *files {
	f := &files{}
	for i := range 10 {
		f.names = append(f.names, fmt.Sprintf("%02d.yaml", i))
	}
	return f
}

// draw is a valid content of all files.
func (f *files) draw(r *rand.Rand) map[string]string {
	all := map[string]string{}
	for _, name := range f.names {
		all[name] = f.content(r)
	}
	return all
}

// content draws one to three valid documents.
func (f *files) content(r *rand.Rand) string {
	var docs []string
	for range 1 + r.IntN(3) {
		docs = append(docs, document(r))
	}
	return strings.Join(docs, "---\n")
}

func document(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0, 1, 2:
		return serviceEntry(r)
	case 3, 4:
		return virtualService(r)
	case 5:
		return destinationRule(r)
	case 6:
		return sidecar(r)
	default:
		return workloadEntry(r)
	}
}

func pick[V any](r *rand.Rand, from ...V) V { return from[r.IntN(len(from))] }

func host(r *rand.Rand) string {
	return pick(r, "web.shop.svc.cluster.local", "db.shop.svc.cluster.local", "ledger.bank.svc.cluster.local", "api.example.com", "www.example.com", "web")
}

// head draws kind, namespace and name; names repeat, so that objects are in several files.
func head(r *rand.Rand, kind string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s, creationTimestamp: \"2024-01-0%dT00:00:00Z\"}\n",
		kind, pick(r, "a", "b", "c", "d"), pick(r, namespaces...), 1+r.IntN(4))
}

func exportTo(r *rand.Rand) string {
	return pick(r, `["*"]`, `["*"]`, `["."]`, `["shop"]`, `["bank", "shop"]`)
}

func serviceEntry(r *rand.Rand) string {
	port := pick(r, 21080, 21090, 21100)
	var b strings.Builder
	fmt.Fprintf(&b, "%sspec:\n  hosts: [%s]\n  exportTo: %s\n  location: MESH_INTERNAL\n", head(r, "ServiceEntry"), host(r), exportTo(r))
	fmt.Fprintf(&b, "  ports: [{number: %d, name: main, protocol: %s}]\n", port, pick(r, "HTTP", "HTTP", "HTTP2", "TCP", "TLS"))
	switch r.IntN(5) {
	case 0:
		fmt.Fprintf(&b, "  resolution: STATIC\n  workloadSelector: {labels: {app: %s}}\n", pick(r, "x", "y"))
	case 1:
		b.WriteString("  resolution: DNS\n  endpoints: [{address: localhost}]\n")
	default:
		b.WriteString("  resolution: STATIC\n  endpoints:\n")
		for i := range 1 + r.IntN(3) {
			fmt.Fprintf(&b, "  - {address: 127.2.%d.%d, labels: {version: %s}, weight: %d}\n", i, 1+r.IntN(4), pick(r, "v1", "v2"), 1+r.IntN(3))
		}
	}
	return b.String()
}

func virtualService(r *rand.Rand) string {
	share := r.IntN(101)
	match := pick(r, "", "    match: [{uri: {prefix: /p}}]\n", "    match: [{headers: {who: {exact: me}}}]\n", "    match: [{sourceNamespace: shop}]\n")
	return head(r, "VirtualService") + fmt.Sprintf(`spec:
  hosts: [%s]
  exportTo: %s
  http:
  - route: [{destination: {host: %s, subset: v1}, weight: %d}, {destination: {host: %s}, weight: %d}]
    timeout: %ds
%s`, pick(r, host(r), host(r), `"*.example.com"`), exportTo(r), host(r), share, host(r), 100-share, 1+r.IntN(5), match)
}

func destinationRule(r *rand.Rand) string {
	return head(r, "DestinationRule") + fmt.Sprintf(`spec:
  host: %s
  exportTo: %s
  trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}, outlierDetection: {}}
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
`, pick(r, host(r), host(r), `"*.example.com"`, `"*"`), exportTo(r), 1+r.IntN(9))
}

func sidecar(r *rand.Rand) string {
	return head(r, "Sidecar") + fmt.Sprintf("spec: {egress: [{hosts: [%s]}]}\n",
		pick(r, `"*/*"`, `"./*"`, `"shop/*"`, `"shop/*", "bank/*"`, `"*/*.example.com", "./*"`))
}

func workloadEntry(r *rand.Rand) string {
	app := pick(r, "x", "y")
	return head(r, "WorkloadEntry") + fmt.Sprintf("spec: {address: 127.3.0.%d, labels: {app: %s, version: %s}}\n", 1+r.IntN(4), app, pick(r, "v1", "v2"))
}

// broken draws what goes wrong with a file: it is cut, no YAML, no object, or an object that is refused.
func broken(r *rand.Rand, was string) string {
	switch r.IntN(5) {
	case 0:
		return was[:len(was)*r.IntN(100)/100]
	case 1:
		return was + "\n}{ this is no YAML: [\n"
	case 2:
		return "\x00\x01\x02\xff"
	case 3:
		return strings.Replace(was, "spec:", "spec: {hosts: [\"not a host\"], nonsense: true}\nrest:", 1)
	default:
		return strings.ReplaceAll(was, "kind: ", "kind: No")
	}
}
