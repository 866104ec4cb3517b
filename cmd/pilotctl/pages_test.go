package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// still is a mesh in which nothing moves: two proxies, two problems.
type still struct{ view loop.View }

// Inspect implements admin.Mesh.
func (s still) Inspect(_ context.Context, fn func(*loop.View)) error {
	fn(&s.view)
	return nil
}

const (
	web  = "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local"
	bank = "sidecar~10.1.0.2~api-1.bank~bank.svc.cluster.local"
)

const ingressDocument = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop, annotations: {kubernetes.io/ingress.class: istio}}
spec:
  tls: [{hosts: [shop.example.com], secretName: shop-cert}]
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
`

// Streams implements admin.Streams.
func (still) Streams() []server.Status {
	synced := protocol.TypeStatus{Subscribed: true, Nonce: "1", Sent: 1, Acked: 1}
	refused := synced
	refused.Rejected = "a regex does not compile"
	return []server.Status{
		{ID: 1, Node: web, Attachment: web + "-1", Variant: protocol.Delta, Types: [resource.Types]protocol.TypeStatus{synced, synced, synced, refused}},
		{ID: 2, Node: bank, Attachment: bank + "-1", Peer: "10.1.0.2:40908", Connected: time.Now(), Alone: time.Minute, Types: [resource.Types]protocol.TypeStatus{{Subscribed: true, Nonce: "2", InFlight: true}, {Subscribed: true}}},
	}
}

// known are the real pages over a still mesh.
func known(t *testing.T) http.Handler {
	t.Helper()
	tables := state.New(state.Options{})
	graph := query.New(tables.DB, query.Options{Strict: true})
	queries := class.Define(graph, tables)
	reviews := api.Key{Kind: "VirtualService", Namespace: "shop", Name: "reviews"}
	var problems omap.Map[omap.Name, api.Problem]
	for _, p := range []api.Problem{
		{Position: api.Position{File: "broken.yaml", Line: 7}, Severity: api.Error, Code: "file-unreadable", Reason: "cannot be read"},
		{Object: reviews, Severity: api.Warning, Code: "field-ineffective", Field: "spec.http[0]", Reason: "is odd"},
	} {
		problems = omap.With(problems, omap.Put(omap.Name(p.OutputName()), p))
	}
	var batch source.Batch
	for _, d := range api.Decode("ingress.yaml", []byte(ingressDocument)) {
		batch.Events = append(batch.Events, source.Event{Key: d.Key, Object: d.Object})
	}
	graph.Commit(func(tx *store.Txn) {
		tables.Apply(tx, batch)
		warming := connected.ResourceKey{Type: uint8(resource.Endpoint), Name: "outbound|80||reviews"}
		tables.Shared.Set(tx, bank, 2)
		tables.Warming.Set(tx, web+"-1", connected.Warming{Resources: []connected.ResourceKey{warming}, More: []uint8{warming.Type}})
		tables.Positions.Set(tx, reviews, api.Position{File: "mesh.yaml", Line: 3})
		for id, namespace := range map[string]string{web: "shop", bank: "bank"} {
			tables.Proxies.Set(tx, id+"-1", &proxy.Proxy{ID: id, Namespace: namespace, Role: proxy.Sidecar, Version: "1.31.0", Envoy: 40})
		}
	})
	m := still{loop.View{Tables: tables, Graph: graph, Queries: queries, Problems: problems}}
	build := run.Build{Version: "test"}
	return admin.New(admin.Options{
		Build: build, Mesh: m, Streams: m, Ready: new(admin.Readiness), Metrics: admin.NewMetrics(build),
		Commits: new(admin.Commits), Board: admin.NewBoard(nil), Log: logging.New(io.Discard, false, []logging.Part{{Name: "xds", Logs: "streams", Scopes: []string{"ads"}}}),
	}).Handler()
}
