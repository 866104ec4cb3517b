package cluster_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const config = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: a}
spec: {hosts: [one.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: a}
spec: {hosts: [two.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.2}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: one, namespace: a}
spec: {host: one.com, subsets: [{name: v1, labels: {version: v1}}]}
`

// The clusters of a host can be read as messages, which are equal to the encoded clusters. A host has a cell for them only
// while something reads it, so that they are not held twice.
func TestMessages(t *testing.T) {
	tables := state.New(state.Options{})
	g := query.New(tables.DB, query.Options{Strict: true})
	services := service.Define(g, tables)
	rules := traffic.Define(g, tables, services)
	scopes := scope.Define(g, tables, services, rules)
	q := cluster.Define(g, tables, services, rules, scopes, gateway.Define(g, tables, services, rules, scopes))
	batch := source.Batch{Source: "test", Synced: true}
	for _, o := range meshtest.Parse(t, config) {
		batch.Events = append(batch.Events, source.Event{Key: o.Key, Object: o})
	}
	var sent omap.Map[omap.Name, *resource.Resource]
	defer q.Base.Observe(service.All{}, func(m omap.Map[omap.Name, *resource.Resource]) { sent = m })()
	commit := func(write func(tx *store.Txn)) {
		g.Commit(write)
		for g.Slice(1000) {
		}
	}
	commit(func(tx *store.Txn) { tables.Apply(tx, batch) })
	if n := g.Cells()["clusterMessages"]; sent.Len() != 3 || n != 0 {
		t.Fatalf("%d clusters and %d cells of messages, want 3 and none", sent.Len(), n)
	}

	var messages []*clusterv3.Cluster
	seen := layer.HostForClient{HostView: service.HostView{Host: "one.com"}}
	release := q.Messages.Observe(seen, func(list []*clusterv3.Cluster, _ bool) { messages = list })
	commit(func(*store.Txn) {})
	if n := g.Cells()["clusterMessages"]; len(messages) != 2 || n != 1 {
		t.Fatalf("%d messages in %d cells, want 2 in one", len(messages), n)
	}
	for _, m := range messages {
		r, ok := sent.Get(omap.Name(m.Name))
		if !ok {
			t.Fatalf("no resource %q", m.Name)
		}
		decoded, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(decoded, m) {
			t.Errorf("%s is sent as %v, the message is %v", m.Name, decoded, m)
		}
	}
	release()
	commit(func(*store.Txn) {})
	if n := g.Cells()["clusterMessages"]; n != 0 {
		t.Errorf("%d cells of messages that nobody reads", n)
	}
}
