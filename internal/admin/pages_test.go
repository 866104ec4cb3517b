package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestReady(t *testing.T) {
	w := newWorld(t, shop)
	first, second := w.ready.Missing("the files were not read"), w.ready.Missing("nobody listens")
	if code, body := w.ask("192.0.2.1:1", "/ready"); code != http.StatusServiceUnavailable || body != "not ready: the files were not read; nobody listens\n" {
		t.Errorf("%d %q", code, body)
	}
	first()
	first() // once more must not take the other one away
	if code, body := w.ask("192.0.2.1:1", "/ready"); code != http.StatusServiceUnavailable || body != "not ready: nobody listens\n" {
		t.Errorf("%d %q", code, body)
	}
	second()
	if code, body := w.ask("192.0.2.1:1", "/ready"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestWhoMayLook(t *testing.T) {
	w := newWorld(t, shop)
	for _, c := range []struct {
		address, page string
		remote        bool
		code          int
	}{
		{"127.0.0.1:1", "/debug/configz", false, 200},
		{"[::1]:1", "/debug/configz", false, 200},
		{"[::ffff:127.0.0.1]:1", "/debug", false, 200},
		{"192.0.2.1:1", "/debug", false, 403},
		{"192.0.2.1:1", "/debug/configz", false, 403},
		{"192.0.2.1:1", "/debug/pprof/cmdline", false, 403},
		{"192.0.2.1:1", "/debug/none", false, 403},
		{"pipe", "/debug/configz", false, 403},
		{"192.0.2.1:1", "/debug/configz", true, 200},
		{"192.0.2.1:1", "/metrics", false, 200},
		{"192.0.2.1:1", "/version", false, 200},
	} {
		w.options.Remote, w.options.Profile = c.remote, true
		if code, body := w.ask(c.address, c.page); code != c.code {
			t.Errorf("%s from %s, remote %v: %d, want %d: %s", c.page, c.address, c.remote, code, c.code, body)
		}
	}
	if _, body := w.ask("192.0.2.1:1", "/debug"); body == "" {
		t.Error("the refusal says nothing")
	}
}

// TestHost: a web page that makes its own name lead to this host (DNS rebinding) reads no configuration, with --debugRemote neither.
// Pages for probes and scrapers answer to every name.
func TestHost(t *testing.T) {
	w := newWorld(t, shop)
	w.options.Log, w.options.Profile, w.options.Hosts = quiet(), true, []string{"istiod.istio-system.svc"}
	for _, remote := range []bool{false, true} {
		w.options.Remote = remote
		h := New(w.options).Handler()
		for page, want := range map[string]int{
			"/debug": 421, "/debug/": 421, "/debug/configz": 421, "/debug/list": 421, "/debug/pprof/cmdline": 421, "/debug/none": 421,
			"/ready": 200, "/metrics": 200, "/version": 200,
		} {
			for host, want := range map[string]int{"rebind.evil.example:8080": want, "istiod.istio-system.svc:15014": 0, "localhost:1": 0} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, page, http.NoBody)
				r.RemoteAddr, r.Host = here, host
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, r)
				if want != 0 && answer.Code != want || want == 0 && answer.Code == 421 {
					t.Errorf("%s as %s, remote %v: %d %s", page, host, remote, answer.Code, answer.Body)
				}
			}
		}
	}
}

func TestProfileIsOptional(t *testing.T) {
	w := newWorld(t, shop)
	for profile, want := range map[bool]int{true: 200, false: 404} {
		w.options.Profile = profile
		if code, _ := w.ask(here, "/debug/pprof/cmdline"); code != want {
			t.Errorf("profile %v: %d, want %d", profile, code, want)
		}
	}
}

// TestList: every page that is listed works and is linked from the index.
func TestList(t *testing.T) {
	w := newWorld(t, shop+`---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: filter, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 1s}}}]}
`)
	w.connect("web-1.shop")
	var list []struct{ Path, What string }
	w.read("/debug/list", &list)
	if len(list) < 8 {
		t.Fatalf("only %d pages are listed", len(list))
	}
	code, index := w.ask(here, "/debug")
	if code != 200 || !strings.Contains(index, "1 connected") {
		t.Errorf("the index: %d %s", code, index)
	}
	query := map[string]string{"/debug/live": "?kind=DestinationRule&namespace=shop&name=reviews", "/debug/can-i": "?to=reviews.shop:80", "/debug/patchz": "?namespace=shop&name=filter"}
	for _, p := range list {
		about := cmp.Or(query[p.Path], "?proxyID=web-1.shop")
		if p.What == "" || !strings.Contains(index, `href="`+p.Path) {
			t.Errorf("%s is not on the index page", p.Path)
		}
		code, body := w.ask(here, p.Path+about)
		if code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", p.Path, code, body)
		}
		if _, pretty := w.ask(here, p.Path+about+"&pretty"); strings.Contains(body, ",") && !strings.Contains(pretty, "\n  ") {
			t.Errorf("%s?pretty is not indented", p.Path)
		}
	}
	if code, body := w.ask(here, "/debug/none"); code != 404 || !strings.Contains(body, "/debug lists them") {
		t.Errorf("an unknown page: %d %s", code, body)
	}
}

func TestVersion(t *testing.T) {
	w := newWorld(t, shop)
	var b run.Build
	if w.read("/version", &b); b.Version != "1.2.3" {
		t.Errorf("got %+v", b)
	}
}

// TestSync follows a proxy through a response that it acknowledges and one that it rejects.
func TestSync(t *testing.T) {
	w := newWorld(t, shop)
	c, response := w.connect("web-1.shop")
	page := "/debug/syncz?proxyID=web-1.shop"
	only := func(list []Sync) Sync {
		if len(list) != 1 {
			t.Fatalf("%d proxies, want 1", len(list))
		}
		return list[0]
	}
	now := only(eventually(w, page, func(l []Sync) bool { return len(l) == 1 && l[0].Types["CDS"].State == Stale }))
	if now.Proxy != "web-1.shop" || now.Cluster != "east" || now.Version != "1.31.0" || now.Type != "sidecar" || now.Protocol != "delta" {
		t.Errorf("got %+v", now)
	}
	if now.ClusterSent == "" || now.ClusterAcked != "" || now.Types["LDS"].State != Unwatched || !now.Types["CDS"].Wildcard {
		t.Errorf("got %+v", now)
	}
	c.answer(response, "")
	now = only(eventually(w, page, func(l []Sync) bool { return l[0].Types["CDS"].State == Synced }))
	if now.ClusterSent != now.ClusterAcked || now.Types["CDS"].AckedRevision == 0 {
		t.Errorf("got %+v", now)
	}
	c.send(subscribeListeners())
	c.answer(c.receive(), "listener refused")
	now = only(eventually(w, page, func(l []Sync) bool { return l[0].Types["LDS"].State == Rejected }))
	if now.Types["LDS"].LastError != "listener refused" || now.ListenerSent == now.ListenerAcked {
		t.Errorf("got %+v", now)
	}
	if got := eventually(w, "/debug/syncz?namespace=other", func([]Sync) bool { return true }); len(got) != 0 {
		t.Errorf("a proxy of another namespace is listed: %+v", got)
	}
	var connections struct {
		Total   int `json:"totalClients"`
		Clients []Connection
	}
	w.read("/debug/connections", &connections)
	if connections.Total != 1 || !strings.HasPrefix(connections.Clients[0].ID, c.node.Id+"-") || connections.Clients[0].Connected.IsZero() {
		t.Errorf("got %+v", connections)
	}
}

// TestSyncResumed: a proxy that has everything when it connects is in sync, although it was sent nothing.
func TestSyncResumed(t *testing.T) {
	w := newWorld(t, shop)
	former, clusters := w.connect("web-1.shop")
	former.answer(clusters, "")
	former.send(subscribeListeners())
	listeners := former.receive()
	former.answer(listeners, "")
	again := subscribeListeners()
	again.InitialResourceVersions = map[string]string{}
	for _, l := range listeners.Resources {
		again.InitialResourceVersions[l.Name] = l.Version
	}
	c, clusters := w.connect("web-2.shop")
	c.answer(clusters, "")
	c.send(again)
	now := eventually(w, "/debug/syncz?proxyID=web-2.shop", func(l []Sync) bool { return len(l) == 1 && l[0].Types["LDS"].State != Unwatched })[0]
	if now.Types["LDS"].State != Synced || now.ListenerSent == "" || now.ListenerSent != now.ListenerAcked {
		t.Errorf("got %+v", now)
	}
	if status := eventually(w, "/debug/push_status", func(pushProgress) bool { return true }); len(status.Behind) != 0 {
		t.Errorf("behind: %v", status.Behind)
	}
}

// dump has the fields of a config dump that these tests check.
type dump struct {
	Proxy    string
	Revision int
	Configs  []map[string]json.RawMessage
}

func TestConfigDump(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	have := func(d dump) bool { return len(d.Configs) > 0 }
	d := eventually(w, "/debug/config_dump?proxyID=web-1.shop", have)
	if len(d.Configs) != 3 || d.Revision == 0 || d.Proxy != "web-1.shop" {
		t.Fatalf("got %+v", d)
	}
	var clusters []struct {
		VersionInfo string `json:"version_info"`
		Cluster     struct {
			Type string `json:"@type"`
			Name string
		}
	}
	if err := json.Unmarshal(d.Configs[0]["dynamic_active_clusters"], &clusters); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(clusters, func(c struct {
		VersionInfo string `json:"version_info"`
		Cluster     struct {
			Type string `json:"@type"`
			Name string
		}
	}) bool {
		return c.Cluster.Name == "outbound|80||reviews.shop.svc.cluster.local"
	})
	if i < 0 || clusters[i].VersionInfo == "" || clusters[i].Cluster.Type != "type.googleapis.com/envoy.config.cluster.v3.Cluster" {
		t.Errorf("got %+v", clusters)
	}
	if d = eventually(w, "/debug/config_dump?proxyID=web-1.shop&types=eds,routes", have); len(d.Configs) != 2 ||
		!strings.Contains(string(d.Configs[0]["dynamic_endpoint_configs"]), "10.1.0.1") || d.Configs[1]["dynamic_route_configs"] == nil {
		t.Errorf("got %s", d.Configs)
	}
	if d = eventually(w, "/debug/config_dump?proxyID=web-1&include_eds", have); len(d.Configs) != 4 {
		t.Errorf("%d parts, want 4", len(d.Configs))
	}
}

func TestConfigDumpOfWhom(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	w.connect("web-10.shop")
	for page, want := range map[string]string{
		"?":                            "400 say which proxy",
		"?proxyID=nobody":              "404 no connected proxy is called \"nobody\"; there are: web-1.shop, web-10.shop",
		"?proxyID=web":                 "400 2 proxies are called something like \"web\"; name one of: web-1.shop, web-10.shop",
		"?proxyID=web-1.shop&types=no": "400 \"no\" is not a type",
	} {
		if code, body := w.ask(here, "/debug/config_dump"+page); !strings.HasPrefix(fmt.Sprint(code, " ", body), want) {
			t.Errorf("%s: %d %s, want %s", page, code, body, want)
		}
	}
	if d := eventually(w, "/debug/config_dump?proxyID=web-1.shop", func(d dump) bool { return len(d.Configs) > 0 }); d.Proxy != "web-1.shop" {
		t.Errorf("the name that fits exactly was not preferred: %s", d.Proxy)
	}
}

func TestConfig(t *testing.T) {
	w := newWorld(t, shop)
	var list []config
	w.read("/debug/configz", &list)
	var names []string
	for _, o := range list {
		names = append(names, o.Kind+" "+o.Metadata.Name+" "+o.Position)
	}
	want := []string{"DestinationRule reviews mesh.yaml:28", "ServiceEntry ratings mesh.yaml:12", "ServiceEntry reviews mesh.yaml:2", "WorkloadEntry ratings-1 mesh.yaml:23"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	var short []Object
	w.read("/debug/configz?names&kind=serviceentry", &short)
	if want := []Object{{Kind: "ServiceEntry", Namespace: "shop", Name: "ratings"}, {Kind: "ServiceEntry", Namespace: "shop", Name: "reviews"}}; !slices.Equal(short, want) {
		t.Errorf("got %+v, want %+v", short, want)
	}
	w.read("/debug/configz?kind=workloadentry&namespace=shop", &list)
	if len(list) != 1 || !strings.Contains(string(list[0].Spec), "10.1.0.3") {
		t.Errorf("got %+v", list)
	}
}

func TestServices(t *testing.T) {
	w := newWorld(t, shop)
	var list []Service
	w.read("/debug/registryz", &list)
	if len(list) != 2 || list[0].Name != "ratings" || !slices.Equal(list[0].VisibleTo, []string{"shop"}) ||
		!slices.Equal(list[1].VisibleTo, []string{"*"}) || list[1].Ports[0] != (Port{80, 8080, "http", "HTTP"}) ||
		list[1].Resolution != "STATIC" || list[1].Endpoints != nil {
		t.Errorf("got %+v", list)
	}
	w.read("/debug/endpointz?host=ratings.shop.svc.cluster.local", &list)
	if len(list) != 1 || len(list[0].Endpoints) != 1 || list[0].Endpoints[0].Address != "10.1.0.3" || list[0].Endpoints[0].Workload != "ratings-1" {
		t.Errorf("got %+v", list)
	}
	w.read("/debug/endpointz?namespace=shop", &list)
	if len(list) != 2 || len(list[1].Endpoints) != 2 || list[1].Endpoints[1].Locality != "eu/a" {
		t.Errorf("got %+v", list)
	}
	if w.read("/debug/endpointz?namespace=none", &list); len(list) != 0 {
		t.Errorf("got %+v", list)
	}
}

// TestClusterEndpoints: the endpoints of a Kubernetes Service come from its EndpointSlices.
func TestClusterEndpoints(t *testing.T) {
	w := newWorld(t, shop)
	at := func(kind, name string) api.Key {
		return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: "Kubernetes"}
	}
	w.loop.Apply(source.Batch{Source: "cluster", Synced: true, Events: []source.Event{
		{Key: at(kube.KindService, "details"), Value: &kube.Service{Addresses: []string{"10.96.0.1"}, Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.TCP}}}},
		{Key: at(kube.KindEndpointSlice, "details-x"), Value: &kube.Slice{
			Service: "details", Ports: intern.Of(kube.SlicePort{Name: "http", Number: 8080}),
			Endpoints: []kube.SliceEndpoint{{Address: "10.1.0.9"}},
		}},
	}})
	w.settle()
	var list []Service
	w.read("/debug/endpointz?host=details.shop.svc.cluster.local", &list)
	if len(list) != 1 || len(list[0].Endpoints) == 0 || list[0].Endpoints[0].Address != "10.1.0.9" || list[0].Endpoints[0].Ports["http"] != 8080 {
		t.Errorf("got %+v", list)
	}
}

func TestProblems(t *testing.T) {
	reviews := api.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "reviews"}
	w := newWorld(t, shop,
		api.Problem{Object: reviews, Severity: api.Warning, Field: "spec.ports[0]", Reason: "is odd"},
		api.Problem{Position: api.Position{File: "broken.yaml", Line: 7}, Severity: api.Error, Reason: "cannot be read"})
	list := eventually(w, "/debug/problemz", func(list []Problem) bool { return len(list) == 2 })
	if p := list[0]; p.File != "broken.yaml" || p.Line != 7 || p.Level != "error" || p.Revision == 0 || p.Since.IsZero() {
		t.Errorf("got %+v", p)
	}
	if p := list[1]; p.Object.Key() != reviews || p.File != "mesh.yaml" || p.Line != 2 { // found where the object stands
		t.Errorf("got %+v", p)
	}
	since := list[1].Revision
	w.connect("web-1.shop") // later commits do not make it younger
	if w.read("/debug/problemz?level=warning&kind=ServiceEntry", &list); len(list) != 1 || list[0].Revision != since {
		t.Errorf("got %+v", list)
	}
	if w.read("/debug/problemz?namespace=other", &list); list == nil || len(list) != 0 {
		t.Errorf("got %+v, want an empty list", list)
	}
}

func TestHistory(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	var list []history
	w.read("/debug/historyz", &list)
	if len(list) != 1 || list[0].At == nil {
		t.Fatalf("got %+v, want the commit that changed the configuration", list)
	}
	first := list[0]
	w.read(fmt.Sprintf("/debug/historyz?table=objects&revision=%d", first.Revision), &list)
	if len(list) != 1 || len(list[0].Rows) != 4 || list[0].Rows[0] != (ChangedRow{"objects", "ServiceEntry shop/reviews", "added"}) {
		t.Errorf("got %+v, want the four objects that the first commit added", list)
	}
	for page, want := range map[string]int{"revision=x": http.StatusBadRequest, "revision=999": http.StatusNotFound} {
		if code, body := w.ask(here, "/debug/historyz?"+page); code != want {
			t.Errorf("%s: %d %s, want %d", page, code, body, want)
		}
	}
}

func TestCells(t *testing.T) {
	w := newWorld(t, shop)
	w.connect("web-1.shop")
	var c Cells
	w.read("/debug/cellz", &c)
	if c.Revision < 2 || c.Live == 0 || len(c.ByQuery) == 0 || c.Faults == nil || len(c.Commits) < 2 {
		t.Fatalf("got %+v", c)
	}
	if last := c.Commits[len(c.Commits)-1]; last.Objects[sourceName] != 4 || last.Revision != 1 || last.At.IsZero() {
		t.Errorf("the first commit: %+v", last)
	}
}
