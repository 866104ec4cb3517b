package admin

import (
	"net/http"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
)

// edit applies YAML as an edit of the mesh's only source.
func (w *world) edit(docs string) {
	w.t.Helper()
	batch := source.Batch{Source: sourceName, Synced: true}
	for _, d := range api.Decode("mesh.yaml", []byte(docs)) {
		d.Check()
		if d.Object == nil {
			w.t.Fatal(d.Problems)
		}
		batch.Events = append(batch.Events, source.Event{Key: d.Key, Object: d.Object})
	}
	w.loop.Apply(batch)
	w.settle()
}

const rulePage = "/debug/live?kind=destinationrule&namespace=shop&name=reviews"

// TestLive follows one edit: the proxy that needs the object is waited for, and an edit of another object does not count.
func TestLive(t *testing.T) {
	w := newWorld(t, shop)
	if got := eventually(w, rulePage, func(Live) bool { return true }); got.Proxies != 0 || !got.Done() || got.Revision != 1 {
		t.Errorf("without proxies: %+v", got)
	}
	c, r := w.connect("web-1.shop")
	got := eventually(w, rulePage, func(v Live) bool { return v.Proxies == 1 })
	if got.Live != 0 || len(got.Behind) != 1 || got.Behind[0].Proxy != "web-1.shop" || got.Behind[0].Acknowledged != 0 {
		t.Errorf("before the first acknowledgement: %+v", got)
	}
	c.answer(r, "")
	eventually(w, rulePage, func(v Live) bool { return v.Live == 1 })

	w.edit(strings.Replace(shop, "maxConnections: 10", "maxConnections: 11", 1))
	r = c.receive()
	got = eventually(w, rulePage, func(v Live) bool { return v.Revision > 1 })
	if got.Live != 0 || len(got.Behind) != 1 || got.Behind[0].Acknowledged >= got.Revision {
		t.Errorf("after an edit: %+v", got)
	}
	// The service is an input of the cluster, too, but its own last change is acknowledged.
	service := eventually(w, "/debug/live?kind=ServiceEntry&namespace=shop&name=reviews", func(Live) bool { return true })
	if service.Live != 1 || service.Proxies != 1 || service.Revision != 1 {
		t.Errorf("an object that was not edited: %+v", service)
	}
	c.answer(r, "")
	eventually(w, rulePage, func(v Live) bool { return v.Done() && v.Live == 1 })
}

// TestLiveRejected: an object is not live on a proxy that rejects the resources of an edit, and the answer has the reason.
func TestLiveRejected(t *testing.T) {
	w := newWorld(t, shop)
	c, r := w.connect("web-1.shop")
	c.answer(r, "")
	w.edit(strings.Replace(shop, "maxConnections: 10", "maxConnections: 11", 1))
	c.answer(c.receive(), "too many connections")
	got := eventually(w, rulePage, func(v Live) bool { return len(v.Behind) == 1 && v.Behind[0].Rejected != "" })
	if got.Live != 0 || !strings.Contains(got.Behind[0].Rejected, "too many connections") {
		t.Errorf("%+v", got)
	}
}

// TestLiveOfOthers: a proxy that does not see an object does not need it, and a request for an object that does not exist is answered with that.
func TestLiveOfOthers(t *testing.T) {
	w := newWorld(t, shop, api.Problem{
		Object: api.Key{Kind: api.KindDestinationRule, Namespace: "shop", Name: "broken"}, Severity: api.Error,
		Position: api.Position{File: "mesh.yaml", Line: 3}, Field: "spec.host", Reason: "is missing",
	})
	w.connect("api-1.bank")
	eventually(w, rulePage, func(v Live) bool { return v.Proxies == 1 })
	private := eventually(w, "/debug/live?kind=serviceentries&namespace=shop&name=ratings", func(Live) bool { return true })
	if private.Proxies != 0 || private.Unknown {
		t.Errorf("of an object of another namespace: %+v", private)
	}
	if got := eventually(w, "/debug/live?kind=Sidecar&namespace=shop&name=none", func(Live) bool { return true }); !got.Unknown {
		t.Errorf("of no object: %+v", got)
	}
	broken := eventually(w, "/debug/live?kind=DestinationRule&namespace=shop&name=broken", func(Live) bool { return true })
	if !broken.Unknown || len(broken.Refused) != 1 || broken.Refused[0].Reason != "is missing" {
		t.Errorf("of a refused object: %+v", broken)
	}
	for page, want := range map[string]string{
		"/debug/live?kind=Sidecar":       "say which object",
		"/debug/live?kind=Wheel&name=it": "not a kind",
	} {
		if code, body := w.ask(here, page); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", page, code, body)
		}
	}
}

// TestLiveWarming: a proxy whose agent reports that a resource is warming does not count for the objects that the resource is made of,
// and counts for others. Nothing is left of the report when the proxy goes.
func TestLiveWarming(t *testing.T) {
	w := newWorld(t, shop)
	c, r := w.connect("web-1.shop")
	report := func(names ...string) {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/pilot.v1.Applied", ResourceNamesSubscribe: names})
	}
	const cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster/"
	report(cluster + "outbound|80||reviews.shop.svc.cluster.local")
	c.answer(r, "")
	got := eventually(w, rulePage, func(v Live) bool { return len(v.Behind) == 1 && v.Behind[0].Acknowledged > 0 })
	if got.Live != 0 || strings.Join(got.Behind[0].Warming, ";") != "CDS outbound|80||reviews.shop.svc.cluster.local" {
		t.Errorf("while a cluster is warming: %+v", got)
	}
	const other = "/debug/live?kind=ServiceEntry&namespace=shop&name=ratings"
	if got := eventually(w, other, func(Live) bool { return true }); got.Live != 1 || got.Proxies != 1 {
		t.Errorf("another object while a cluster is warming: %+v", got)
	}
	list := eventually(w, "/debug/syncz", func([]Sync) bool { return true })
	if one := list[0].Types["CDS"]; one.State != Warming || len(one.Warming) != 1 || one.WarmingMore || list[0].Types["LDS"].State != Unwatched {
		t.Errorf("the status of the proxy: %+v", list[0])
	}
	if one := list[0].Types["CDS"]; one.Unused() != "outbound|80||reviews.shop.svc.cluster.local" {
		t.Errorf("the status says %q", one.Unused())
	}
	report(cluster + "*")
	if got := eventually(w, other, func(v Live) bool { return v.Live == 0 }); strings.Join(got.Behind[0].Warming, ";") != "CDS" {
		t.Errorf("while unknown clusters are warming: %+v", got)
	}
	report()
	eventually(w, rulePage, func(v Live) bool { return v.Live == 1 })
	eventually(w, other, func(v Live) bool { return v.Live == 1 })

	report(cluster + "*")
	eventually(w, rulePage, func(v Live) bool { return v.Live == 0 })
	if err := c.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(w, rulePage, func(v Live) bool { return v.Proxies == 0 })
	rows, err := loop.Look(t.Context(), w.loop, func(v *loop.View) int { return v.Tables.Warming.Len() })
	if rows != 0 || err != nil {
		t.Errorf("%d reports are left: %v", rows, err)
	}
}

// TestLiveDraining: a proxy with connections to earlier listeners is live, and is named with their number, until they have ended.
func TestLiveDraining(t *testing.T) {
	w := newWorld(t, shop)
	c, r := w.connect("web-1.shop")
	c.answer(r, "")
	report := func(names ...string) {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/pilot.v1.Applied", ResourceNamesSubscribe: names})
	}
	report("type.googleapis.com/pilot.v1.Draining/2/5")
	got := eventually(w, rulePage, func(v Live) bool { return len(v.Draining) == 1 && v.Live == 1 })
	if d := got.Draining[0]; d.Proxy != "web-1.shop" || d.FilterChains != 2 || d.Connections != 5 || !got.Done() || got.Drained() {
		t.Errorf("%+v", got)
	}
	report()
	eventually(w, rulePage, func(v Live) bool { return v.Drained() && v.Live == 1 })
}
