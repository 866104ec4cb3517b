package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/repo"
	"github.com/pilotmesh/pilot/test/testbed"
)

// errSkipped says that a case cannot run here.
var errSkipped = errors.New("skipped")

// programs are the programs that users run, built for a case, and a folder for their files, which the case removes.
type programs struct {
	dir       string
	discovery *testbed.Discovery
	agent     testbed.AgentOptions
}

// programs builds the programs. The error wraps errSkipped if there is no Envoy.
func (b *bench) programs() (p programs, err error) {
	root, err := repo.Root()
	if err != nil {
		return p, err
	}
	if p.agent.Envoy, _, err = envoy.Find(b.ctx, root); err != nil {
		return p, fmt.Errorf("%w: %w", errSkipped, err)
	}
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return p, err
	}
	server, err := testbed.Build(b.ctx, root, "pilot-discovery", p.dir)
	if err == nil {
		p.agent.Binary, err = testbed.Build(b.ctx, root, "pilot-agent", p.dir)
	}
	if err == nil {
		p.discovery, err = testbed.NewDiscovery(server, p.dir)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, err
}

// threeEnvoys measures, with the programs as users run them, how long an edit of a file takes until three Envoys under
// pilot-agent have acknowledged it.
func threeEnvoys(b *bench) error {
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	d := p.discovery
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return err
	}
	if _, err := d.Write("routes.yaml", splitService(ports[0], 0)); err != nil {
		return err
	}
	if err := d.Start(b.ctx); err != nil {
		return err
	}
	defer d.Stop()
	for i, sotw := range []bool{false, true, false} {
		began := time.Now()
		a, err := testbed.StartAgent(p.agent, p.dir, testbed.Node{
			Name: fmt.Sprintf("client%d", i), Namespace: "shop", IP: fmt.Sprintf("127.1.0.%d", i+1), SotW: sotw, Discovery: d.GRPC,
		})
		if err != nil {
			return err
		}
		defer a.Stop()
		if err := a.AwaitReady(b.ctx); err != nil {
			return err
		}
		b.record("three-envoys/ready", time.Since(began).Seconds())
	}
	return b.edits(d, ports[0])
}

// edits changes a weight over and over.
func (b *bench) edits(d *testbed.Discovery, port int) error {
	var took []float64
	for i := range b.reps(300) {
		ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
		at, err := d.Write("routes.yaml", splitService(port, 1+i%99))
		var settled testbed.Settled
		if err == nil {
			settled, err = d.AwaitSettled(ctx, at)
		}
		cancel()
		if err != nil {
			return err
		}
		if settled.Told != 3 {
			return fmt.Errorf("%d proxies were sent an edit that concerns three", settled.Told)
		}
		took = append(took, float64(settled.Took)/float64(time.Millisecond))
	}
	slices.Sort(took)
	b.record("three-envoys/p50", took[len(took)/2])
	b.record("three-envoys/p99", took[len(took)-1-len(took)/100])
	b.record("three-envoys/max", took[len(took)-1])
	return nil
}

// splitService is a service with two versions, and a route with v2 at the given weight.
func splitService(port, v2 int) string {
	return strings.NewReplacer("PORT", fmt.Sprint(port), "W1", fmt.Sprint(100-v2), "W2", fmt.Sprint(v2)).Replace(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: PORT, name: http, protocol: HTTP}]
  endpoints:
  - {address: 127.0.0.1, ports: {http: 9}, labels: {version: v1}}
  - {address: 127.0.0.1, ports: {http: 9}, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews.shop.svc.cluster.local
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.svc.cluster.local]
  http:
  - route:
    - {destination: {host: reviews.shop.svc.cluster.local, subset: v1}, weight: W1}
    - {destination: {host: reviews.shop.svc.cluster.local, subset: v2}, weight: W2}
`)
}
