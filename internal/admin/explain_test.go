package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func question(proxy, kind, name string) string {
	return "/debug/explain?" + url.Values{"proxyID": {proxy}, "kind": {kind}, "name": {name}}.Encode()
}

// TestExplain asks about a connected proxy over the page that pilotctl reads.
func TestExplain(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	w.connect("web-1.bank")
	const host = "reviews.shop.svc.cluster.local"
	a := eventually(w, question("web-1.shop", "host", "reviews"), func(a reply.Answer) bool { return a.Verdict == reply.Served })
	if a.Version != reply.Version || a.Name != host || len(a.Ports) != 1 || a.Ports[0].Route != "80" || a.Ports[0].Endpoints != 2 {
		t.Errorf("got %+v", a)
	}
	if !slices.ContainsFunc(a.Sources, func(s reply.Source) bool { return s.Object.Position() == "mesh.yaml:2" && s.Role == "service" }) {
		t.Errorf("the declaration is not named: %+v", a.Sources)
	}
	a = eventually(w, question("web-1.bank", "cds", "outbound|9080||ratings.shop.svc.cluster.local"), func(reply.Answer) bool { return true })
	if a.Verdict != reply.Absent || len(a.Reasons) != 1 || a.Reasons[0].Fix == "" || a.Reasons[0].Object.Name != "ratings" {
		t.Errorf("got %+v", a)
	}
	var names Names
	if w.read(question("web-1.shop", "cluster", "")+"&prefix=outbound|80", &names); !slices.Equal(names.Names, []string{"outbound|80||" + host}) {
		t.Errorf("got %+v", names)
	}
	if w.read(question("web-1.bank", "", ""), &names); !slices.Contains(names.Names, host) || slices.Contains(names.Names, "ratings.shop.svc.cluster.local") {
		t.Errorf("got %+v", names)
	}
	for page, want := range map[string]string{
		question("web-1.shop", "weather", "x"): `"weather" is nothing to ask about`,
		question("web-1", "host", "reviews"):   "name one of: web-1.bank, web-1.shop",
		question("", "host", "reviews"):        "say which proxy",
	} {
		if code, body := w.ask(here, page); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", page, code, body)
		}
	}
}

// TestCanI asks over the page that pilotctl reads whether a request is allowed.
func TestCanI(t *testing.T) {
	w := newWorld(t, shop+`---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: reviews, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}
`)
	page := func(path string) string {
		return "/debug/can-i?" + described.Request{From: "bank/api", To: "reviews.shop:80", Path: path}.Query().Encode()
	}
	var a why.Access
	if w.read(page("/"), &a); a.Verdict != access.Allowed || len(a.Answers) != 1 || a.Answers[0].Workloads != 2 {
		t.Errorf("got %+v", a)
	}
	a = why.Access{}
	if w.read(page("/secret"), &a); a.Verdict != access.Denied || len(a.Answers) != 1 || a.Answers[0].Decider.Position() != "mesh.yaml:33" || a.Answers[0].Rule != "spec.rules[0]" {
		t.Errorf("got %+v", a)
	}
	for page, want := range map[string]string{
		page("secret"):                       "must begin with a slash",
		"/debug/can-i?to=reviews:80&weather": `"weather" is no parameter`,
		"/debug/can-i":                       "is not HOST:PORT",
	} {
		if code, body := w.ask(here, page); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", page, code, body)
		}
	}
}

// TestHeldBack: /debug/syncz shows a rejected resource with the time, the reason, and the objects it is made of.
func TestHeldBack(t *testing.T) {
	w := newWorld(t, shop)
	c, response := w.connect("web-1.shop")
	const cluster = "outbound|80||reviews.shop.svc.cluster.local"
	c.answer(response, "cluster "+cluster+" is not to my taste")
	list := eventually(w, "/debug/syncz?proxy=web-1", func(l []Sync) bool { // its objects are found a commit later
		return len(l) == 1 && len(l[0].Types["CDS"].Held) == 1 && len(l[0].Types["CDS"].Held[0].Objects) > 0
	})
	held := list[0].Types["CDS"].Held[0]
	if held.Name != cluster || held.Since.IsZero() || !strings.Contains(held.Reason, "taste") ||
		!slices.Contains(held.Objects, Object{Kind: "DestinationRule", Namespace: "shop", Name: "reviews"}) {
		t.Errorf("got %+v", held)
	}
	a := eventually(w, question("web-1.shop", resource.Cluster.Kind(), cluster), func(reply.Answer) bool { return true })
	if a.Verdict != reply.HeldBack || len(a.Reasons) != 1 || !strings.Contains(a.Reasons[0].Text, "not to my taste") {
		t.Errorf("got %+v", a)
	}
}

// TestProxyPages checks the content of the pages about a single proxy.
func TestProxyPages(t *testing.T) {
	w := newWorld(t, shop+`---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: ratings-2, namespace: shop}
spec: {address: 10.9.0.1, labels: {app: ratings}}
`)
	w.connect("web-1.shop")
	w.connect("api-1.bank")
	scope := eventually(w, "/debug/sidecarz?proxyID=api-1.bank", func(s proxyScope) bool { return len(s.Hosts) > 0 })
	if !slices.Equal(scope.Hosts, []string{"reviews.shop.svc.cluster.local"}) || scope.Namespace != "bank" || scope.Mode != "REDIRECT" {
		t.Errorf("got %+v", scope)
	}
	serves := eventually(w, "/debug/instancesz?proxyID=web-1.shop", func(m map[string][]why.Instance) bool { return len(m) == 1 })
	for _, list := range serves {
		if len(list) != 1 || list[0].Host != "ratings.shop.svc.cluster.local" || list[0].TargetPort != 9080 {
			t.Errorf("got %+v", list)
		}
	}
	var assignments []struct {
		Name string `json:"cluster_name"`
	}
	if w.read("/debug/edsz?proxyID=api-1.bank", &assignments); len(assignments) != 1 || assignments[0].Name != "outbound|80||reviews.shop.svc.cluster.local" {
		t.Errorf("got %+v", assignments)
	}
	var clients struct{ Clients []subscriber }
	if w.read("/debug/adsz?proxyID=web-1.shop", &clients); len(clients.Clients) != 1 || !clients.Clients[0].Watches[resource.Cluster.URL()].All {
		t.Errorf("got %+v", clients)
	}
	if status := eventually(w, "/debug/push_status", func(s pushProgress) bool { return s.Revision > 0 }); status.Proxies != 2 || len(status.Behind) != 2 {
		t.Errorf("got %+v", status)
	}
}
