package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// demanded measures the resident memory of an Envoy in a mesh of 10,000 services with one port each: with all hosts, with hosts on demand before any
// request, and after requests for 50 hosts. It also measures the first request for a host, which waits for the virtual host and its cluster.
func demanded(b *bench) error {
	const services, used = 10_000, 50
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return err
	}
	var text strings.Builder
	for i := range services {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%[1]d, namespace: shop}\nspec:\n  hosts: [s%[1]d.shop.svc.cluster.local]\n"+
			"  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{number: %[2]d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: {http: 9}}, {address: 127.0.0.2, ports: {http: 9}}]\n", i, ports[0])
	}
	if _, err := p.discovery.Write("services.yaml", text.String()); err != nil {
		return err
	}
	if err := p.discovery.Start(b.ctx); err != nil {
		return err
	}
	defer p.discovery.Stop()
	for name, on := range map[string]string{"all": "false", "demand": "true"} {
		e, err := testbed.StartEnvoy(b.ctx, p.agent.Envoy, p.dir, testbed.Node{
			Name: name, Namespace: "shop", Discovery: p.discovery.GRPC, Metadata: map[string]any{"ON_DEMAND_HOSTS": on},
		})
		if err != nil {
			return err
		}
		err = b.useHosts(e, ports[0], name, used)
		e.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// useHosts asks an Envoy for some hosts and records its memory before and after.
func (b *bench) useHosts(e *testbed.Envoy, port int, name string, used int) error {
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	listens := func(ctx context.Context) error {
		n, err := e.Sum(ctx, `listener_manager\.total_listeners_active$`)
		if err == nil && n == 0 {
			err = fmt.Errorf("no listener is active")
		}
		return err
	}
	if err := testbed.Until(ctx, "listeners", listens); err != nil {
		return err
	}
	if err := b.memoryOf(e, "demand-10k/"+name+"-idle"); err != nil {
		return err
	}
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	var took time.Duration
	for i := range used {
		began := time.Now()
		// Nothing listens at the endpoints: a known host is answered with 503, and an unknown one would be with 404.
		if _, err := testbed.Call(ctx, client, port, fmt.Sprintf("s%d.shop", i*100), "/"); testbed.Status(err) != 503 {
			return fmt.Errorf("host %d: %w", i, err)
		}
		took += time.Since(began)
	}
	b.record("demand-10k/"+name+"-first", float64(took)/float64(time.Millisecond)/float64(used))
	return b.memoryOf(e, "demand-10k/"+name+"-used")
}

// memoryOf records the resident memory of an Envoy in MB.
func (b *bench) memoryOf(e *testbed.Envoy, key string) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.PID()))
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kilobytes float64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return fmt.Errorf("resident memory of the Envoy: %w", err)
	}
	b.record(key, kilobytes/1024)
	return nil
}
