package class_test

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// crowdedServer is a server of a Gateway for one host with a certificate of its own.
func crowdedServer(i int) string {
	return fmt.Sprintf("  - {port: {number: 443, name: h%[1]d, protocol: HTTPS}, hosts: [h%[1]d.exam.com], tls: {mode: SIMPLE, credentialName: s%[1]d}}\n", i)
}

// crowdedGateway is a Gateway for hosts from one to another.
func crowdedGateway(name string, from, to int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: edge}\nspec:\n  selector: {gw: front}\n  servers:\n", name)
	for i := from; i < to; i++ {
		b.WriteString(crowdedServer(i))
	}
	return b.String()
}

func crowdedRoutes(gateway string, i int, path string) string {
	return strings.Replace(gatewayRoutes(i, path), "edge/front", "edge/"+gateway, 1)
}

// crowded is a mesh with a gateway of n hosts, which gets certificates as a choice says.
func crowded(t meshtest.T, n int, choice string) (*meshtest.World, proxy.Class) {
	w := meshtest.New(t)
	list := []string{fmt.Sprintf(frontGateway, `"*.plain.com"`, "10.1.0.1"), crowdedGateway("crowd", 0, n)}
	for i := range n {
		list = append(list, crowdedRoutes("crowd", i, "/a"))
	}
	w.Apply(strings.Join(list, "---\n"))
	return w, w.Connect(meshtest.Node(t, "router~10.0.0.1~gw-0.edge~edge.svc.cluster.local", fmt.Sprintf(`{"LABELS": {"gw": "front"}, "ON_DEMAND_CERTIFICATES": "%s"}`, choice)))
}

// TestOnDemandNames: clients may ask for any name in TLS. A name of a host, in whatever case, has the host's certificate, and every other name has none.
func TestOnDemandNames(t *testing.T) {
	w, c := crowded(t, 3, "true")
	for name, want := range map[string]string{
		"h1.exam.com": "s1", "H2.Exam.COM": "s2", "h3.exam.com": "", "exam.com": "", "a.plain.com": "", "h1.exam.com.": "", "": "", "*": "", strings.Repeat("a", 300): "",
	} {
		got, ok := w.Queries.Gateways.OnDemand(w.Graph.Naive(), gateway.ServedOf(c), name)
		if got != want || ok != (want != "") {
			t.Errorf("%q has the certificate %q, %t; want %q", name, got, ok, want)
		}
	}
}

// onDemandCosts returns the cells that run for each of some edits at a gateway with n hosts.
func onDemandCosts(t *testing.T, n int) (out map[string]map[string]int) {
	w, c := crowded(t, n, "true")
	out = map[string]map[string]int{}
	step := func(name string, docs ...string) {
		was, _ := w.State(c).Get(resource.Listener, "0.0.0.0_443")
		w.Graph.Cost()
		w.Apply(strings.Join(docs, "---\n"))
		out[name] = maps.Clone(w.Graph.Cost())
		if now, ok := w.State(c).Get(resource.Listener, "0.0.0.0_443"); !ok || now.ContentHash() != was.ContentHash() {
			t.Errorf("%s: the listener changes", name)
		}
	}
	step("path", crowdedRoutes("crowd", 4, "/b"))
	step("comes", crowdedGateway("crowd", 0, n+1), crowdedRoutes("crowd", n, "/a"))
	step("goes", crowdedGateway("crowd", 0, n))
	step("comes with a Gateway of its own", crowdedGateway("own", n, n+1), crowdedRoutes("own", n, "/a"))
	if n < 50 {
		w.Check()
	}
	return out
}

// TestOnDemandCost: at a gateway with certificates on demand, another host runs the cells of that host, however many others there are, and changes no
// listener. The servers of the others are not read again.
func TestOnDemandCost(t *testing.T) {
	few, many := onDemandCosts(t, 10), onDemandCosts(t, 200)
	for name, got := range many {
		if !maps.Equal(few[name], got) {
			t.Errorf("%s: with 10 hosts %v, with 200 %v", name, few[name], got)
		}
		if got["gatewayVirtualHost"] > 1 || got["gatewayListener"] > 0 || got["declaredServer"] > 1 {
			t.Errorf("%s: runs %v", name, got)
		}
	}
}

// onDemandBytes returns how many bytes a commit allocates that adds a host to a Gateway with n hosts.
func onDemandBytes(t *testing.T, n int) uint64 {
	w, _ := crowded(t, n, "true")
	least := uint64(math.MaxUint64)
	for i := range 5 { // in some of the commits, a map or a buffer grows
		batch := w.Batch(meshtest.Parse(t, crowdedGateway("crowd", 0, n+i+1)+"---\n"+crowdedRoutes("crowd", n+i, "/a"))...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.Graph.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// TestOnDemandBytes: the servers of a Gateway are one object, so that another host costs a look at all of them, but no more: nothing hashes them or makes maps
// of them again. That took 5,000 bytes for each.
func TestOnDemandBytes(t *testing.T) {
	const more, most = 1000, 2000
	few, many := onDemandBytes(t, 200), onDemandBytes(t, 200+more)
	if each := (int64(many) - int64(few)) / more; each > most {
		t.Errorf("with 200 hosts, another one takes %d bytes, with %d hosts %d: %d for each of the others, want at most %d", few, 200+more, many, each, most)
	} else {
		t.Logf("%d bytes with 200 hosts, %d with %d: %d for each", few, many, 200+more, each)
	}
}

// BenchmarkGatewayHost measures the time from a commit until the state of a gateway with 1,000 hosts is ready: another host in its Gateway, and in
// a Gateway of its own.
func BenchmarkGatewayHost(b *testing.B) {
	for _, choice := range []string{"false", "true"} {
		for _, own := range []bool{false, true} {
			b.Run(fmt.Sprintf("ondemand=%s/own=%v", choice, own), func(b *testing.B) {
				w, _ := crowded(b, 1000, choice)
				for i := range b.N {
					b.StopTimer()
					name, from := "crowd", 0
					if own {
						name, from = fmt.Sprint("own", i), 1000+i
					}
					batch := w.Batch(meshtest.Parse(b, crowdedGateway(name, from, 1001+i)+"---\n"+crowdedRoutes(name, 1000+i, "/a"))...)
					b.StartTimer()
					w.Graph.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
					w.Settle(1000)
				}
			})
		}
	}
}
