package class_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// securedService is a service whose only endpoint is the workload of a client, with a proxy that takes mutual TLS.
const securedService = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: ns-03}
spec:
  hosts: [web.example]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: 10.250.0.3, labels: {app: web, security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: ns-03}
spec:
  hosts: [other.example]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: 10.251.0.3, labels: {app: other, security.istio.io/tlsMode: istio}}]
`

// peerChanges are changes of PeerAuthentications, one after the other.
func peerChanges() []change {
	set := func(what, namespace, name, spec string) change {
		return change{what, func(w *meshtest.World, _ meshtest.Large) {
			w.Apply(fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, namespace, spec))
		}}
	}
	return []change{
		set("a policy of a workload", "ns-03", "web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}"),
		set("it permits plain text on a port", "ns-03", "web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {9090: {mode: PERMISSIVE}}}"),
		set("it switches mutual TLS off on a port that a service leads to", "ns-03", "web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: DISABLE}}}"),
		set("it switches it off on another port", "ns-03", "web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {9090: {mode: DISABLE}}}"),
		set("a policy of nobody", "ns-03", "none", "{selector: {matchLabels: {app: none}}, mtls: {mode: STRICT}}"),
		set("a policy of a namespace", "ns-04", "all", "{mtls: {mode: STRICT}}"),
		set("a policy of the mesh that requires mutual TLS", "istio-system", "all", "{mtls: {mode: STRICT}}"),
		set("the same that permits plain text", "istio-system", "all", "{mtls: {mode: PERMISSIVE}}"),
	}
}

// TestCostOfPeers: a policy for one workload changes the class of its proxy, and of no other one. A policy for the mesh or a namespace
// changes no class: it changes the inbound listeners, once for all classes that share one. No cluster changes, and endpoints
// only where mutual TLS is switched off.
func TestCostOfPeers(t *testing.T) {
	small := peerCosts(t, 100)
	if !testing.Short() {
		if large := peerCosts(t, 1000); large != small {
			t.Errorf("costs depend on the size of the mesh:\n%s", meshtest.Difference(small, large))
		}
	}
	golden(t, "testdata/cost-peers.txt", small)
}

func peerCosts(t *testing.T, services int) string {
	w, l := meshtest.New(t), meshtest.Large{Services: services}
	w.Put(append(l.Objects(), meshtest.Parse(t, securedService)...)...)
	classes := map[string]proxy.Class{}
	for _, p := range l.Proxies(t) {
		classes[p.ID] = w.Connect(p)
	}
	var out strings.Builder
	for _, c := range peerChanges() {
		before := map[string]*resource.State{}
		for id, class := range classes {
			before[id] = w.State(class)
		}
		c.do(w, l)
		fmt.Fprintf(&out, "-- %s --\n%s", c.name, counted(w.Graph.Cost()))
		moved, sent := 0, map[string]int{}
		for id, class := range classes {
			now := w.Follow(id)
			if now != class {
				moved++
				classes[id] = now
				w.Leave(class)
			}
			for typ := range resource.Type(resource.Types) {
				for d := range resource.Diff(before[id].Layers(typ), w.State(now).Layers(typ)) {
					sent[typ.String()+" "+d.Name]++
				}
			}
		}
		if moved > 0 {
			fmt.Fprintf(&out, "proxies with another class: %d\n%s", moved, counted(w.Graph.Cost()))
		}
		out.WriteString("sent, and to how many proxies\n")
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			fmt.Fprintf(&out, "  %s %d\n", name, sent[name])
		}
	}
	return out.String()
}

// counted lists how often cells of each query ran.
func counted(cost map[string]int) string {
	var out strings.Builder
	total := 0
	for _, n := range cost {
		total += n
	}
	fmt.Fprintf(&out, "cells %d\n", total)
	for _, name := range slices.Sorted(maps.Keys(cost)) {
		fmt.Fprintf(&out, "  %s %d\n", name, cost[name])
	}
	return out.String()
}
