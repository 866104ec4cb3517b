package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestWarmingForEver: a cluster of a running Envoy does not warm, so the Envoy acknowledges no clusters. Edits for other hosts
// arrive all the same, new clusters and removals among them. For a host that is never resolved that lasts for ever: its object
// is named. A secret is waited for as long as the cluster says. Nothing is left of it when the object goes.
func TestWarmingForEver(t *testing.T) {
	for name, stuck := range map[string]struct {
		object  string
		forEver bool
	}{
		"dns": {forEver: true, object: `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: stuck, namespace: shop}
spec:
  hosts: [stuck.example.com]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: PORT, name: main, protocol: TCP}]
`},
		"secrets": {object: `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: stuck, namespace: shop}
spec:
  host: bystander.shop.svc.cluster.local
  trafficPolicy: {tls: {mode: SIMPLE}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			variants(t, func(t *testing.T, node testbed.Node) { warming(t, node, stuck.object, stuck.forEver) })
		})
	}
}

func warming(t *testing.T, node testbed.Node, stuck string, forEver bool) {
	reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
	ratings, bystander := newService(t, "ratings", backend(t, "r1")), newService(t, "bystander", backend(t, "b1"))
	b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets()+bystander.entry(), "routes.yaml", reviews.weights(100, 0))
	node.Resolver, node.Secrets = silentResolver(t), silentSocket(t)
	e := b.envoy(node)
	b.answers(reviews, "v1", "/")

	b.write("stuck.yaml", strings.ReplaceAll(stuck, "PORT", strconv.Itoa(newService(t, "stuck").port)))
	b.warming(e, 1)
	for i, weights := range [][]int{{0, 100}, {100, 0}} {
		began := b.write("routes.yaml", reviews.weights(weights...))
		b.answers(reviews, []string{"v2", "v1"}[i], "/")
		t.Logf("a route arrived after %v", time.Since(began))
		began = b.write("ratings.yaml", ratings.entry())
		b.answers(ratings, "r1", "/")
		t.Logf("a new service arrived after %v", time.Since(began))
		b.remove("ratings.yaml")
		b.unanswered(ratings)
	}
	if forEver {
		b.warming(e, 1)
		b.problem("stuck.yaml", true)
	} else {
		b.warming(e, 0)
	}
	b.remove("stuck.yaml")
	b.warming(e, 0)
	b.problem("stuck.yaml", false)
	b.write("ratings.yaml", ratings.entry())
	b.answers(ratings, "r1", "/")
}

// warming waits until that many clusters of the Envoy warm.
func (b *bed) warming(e *testbed.Envoy, want int64) {
	b.Helper()
	b.await(fmt.Sprintf("%d clusters to warm", want), func(ctx context.Context) error {
		n, err := e.Sum(ctx, `^cluster_manager\.warming_clusters$`)
		if err == nil && n != want {
			err = fmt.Errorf("%d warm", n)
		}
		return err
	})
}

// problem waits until there is a problem at a file of the configuration, or none.
func (b *bed) problem(file string, want bool) {
	b.Helper()
	b.await(fmt.Sprintf("problem at %s: %v", file, want), func(ctx context.Context) error {
		page, err := b.Get(ctx, "/debug/problemz")
		if err == nil && strings.Contains(page, file) != want {
			err = fmt.Errorf("the problems are %s", page)
		}
		return err
	})
}

// silentResolver is the address of a DNS server that never answers.
func silentResolver(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// silentSocket is a unix socket that takes connections and says nothing.
func silentSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "silent-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sds")
	l, err := net.Listen("unix", path) // the kernel takes connections; no program reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = os.RemoveAll(dir) })
	return path
}
