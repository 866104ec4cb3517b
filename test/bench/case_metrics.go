package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotmesh/pilot/test/testbed"
)

// measuredHost is the service between two real Envoys.
const measuredHost = "cart.shop.svc.cluster.local"

// measuredMesh is a service at an address that only the Envoy of its own workload has. Both Envoys run on one machine, where only one of them can listen for
// the service.
func measuredMesh(port, backend int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cart, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.1.0.2, ports: {http: %d}, labels: {app: cart, version: v1}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: cart, namespace: shop}
spec: {workloadSelector: {labels: {app: cart}}, egress: [{hosts: [~/*]}]}
`, measuredHost, port, backend)
}

// metricsOn switches the metrics of the mesh on.
const metricsOn = `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: istio-system}
spec: {metrics: [{providers: [{name: prometheus}]}]}
`

// pair is two Envoys under pilot-agent: a client's and a server's.
type pair struct {
	client, server *testbed.Agent
	port           int
}

// metered measures the CPU time of two real Envoys per request, with the metrics of the mesh and without, in turns A B B A. Connections between them are
// plain text, which makes the share of the metrics larger than with mutual TLS.
func metered(b *bench) error {
	backend, err := testbed.StartHTTP("cart", 0)
	if err != nil {
		return err
	}
	defer backend.Close()
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return err
	}
	if _, err = p.discovery.Write("mesh.yaml", measuredMesh(ports[0], backend.Port)); err == nil {
		err = p.discovery.Start(b.ctx)
	}
	if err != nil {
		return err
	}
	defer p.discovery.Stop()
	for range b.reps(5) {
		var client, server [2]time.Duration
		for _, on := range []int{0, 1, 1, 0} {
			c, s, err := b.meteredPass(p, ports[0], on == 1)
			if err != nil {
				return err
			}
			client[on], server[on] = client[on]+c, server[on]+s
		}
		b.record("metrics-envoy/client-ratio", float64(client[1])/float64(client[0]))
		b.record("metrics-envoy/server-ratio", float64(server[1])/float64(server[0]))
	}
	return nil
}

// meteredPass starts both Envoys, sends requests through them, and returns their CPU times.
func (b *bench) meteredPass(p programs, port int, on bool) (client, server time.Duration, err error) {
	content := "# no metrics\n"
	if on {
		content = metricsOn
	}
	if _, err := p.discovery.Write("telemetry.yaml", content); err != nil {
		return 0, 0, err
	}
	e, err := b.startPair(p, port)
	if err != nil {
		return 0, 0, err
	}
	defer e.client.Stop()
	defer e.server.Stop()
	requests := 12_000
	if b.quick {
		requests /= 4
	}
	if err := e.awaitMetrics(b.ctx, on); err != nil {
		return 0, 0, err
	}
	if err := e.send(b.ctx, requests/4); err != nil { // warms caches
		return 0, 0, err
	}
	c0, s0, err := e.times()
	if err == nil {
		err = e.send(b.ctx, requests)
	}
	if err != nil {
		return 0, 0, err
	}
	c1, s1, err := e.times()
	return c1 - c0, s1 - s0, err
}

func (b *bench) startPair(p programs, port int) (e pair, err error) {
	start := func(app, ip string) (*testbed.Agent, error) {
		o := p.agent
		o.Env = []string{fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q,"version":"v1"}`, app), "ISTIO_META_WORKLOAD_NAME=" + app}
		a, err := testbed.StartAgent(o, p.dir, testbed.Node{Name: app, Namespace: "shop", IP: ip, Discovery: p.discovery.GRPC})
		if err == nil {
			if err = a.AwaitReady(b.ctx); err != nil {
				a.Stop()
			}
		}
		return a, err
	}
	e.port = port
	if e.server, err = start("cart", "127.1.0.2"); err != nil {
		return e, err
	}
	if e.client, err = start("shopper", "127.1.0.1"); err != nil {
		e.server.Stop()
	}
	return e, err
}

// awaitMetrics sends requests until both Envoys count them, or until they are answered if there are no metrics.
func (e pair) awaitMetrics(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := e.send(ctx, 1)
		for _, a := range []*testbed.Agent{e.client, e.server} {
			text, statusErr := a.Status(ctx, "/stats/prometheus")
			switch {
			case err != nil:
			case statusErr != nil:
				err = statusErr
			case strings.Contains(text, "\nistio_requests_total{") != on:
				err = fmt.Errorf("the Envoy has metrics of the mesh: %t", !on)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// send sends requests over four connections and reads their answers.
func (e pair) send(ctx context.Context, n int) error {
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	group, ctx := errgroup.WithContext(ctx)
	for range min(4, n) {
		group.Go(func() error {
			for range todo {
				_, err := testbed.Call(ctx, client, e.port, measuredHost, "/")
				if err != nil { // the application may close a connection while a request is on its way to it
					_, err = testbed.Call(ctx, client, e.port, measuredHost, "/")
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// times are the CPU times of both Envoys so far.
func (e pair) times() (client, server time.Duration, err error) {
	if client, err = envoyTime(e.client); err != nil {
		return 0, 0, err
	}
	server, err = envoyTime(e.server)
	return client, server, err
}

// envoyTime is the CPU time of the Envoy of an agent, all threads.
func envoyTime(a *testbed.Agent) (time.Duration, error) {
	pids, err := a.EnvoyPIDs()
	if err == nil && len(pids) == 0 {
		err = errors.New("the agent has started no Envoy")
	}
	if err != nil {
		return 0, err
	}
	return spent(filepath.Join("/proc", strconv.Itoa(pids[len(pids)-1]), "stat")) // the log has the passes before, too
}
