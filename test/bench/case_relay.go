package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	usage "github.com/pilotmesh/pilot/test/kit/process"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	relayedHosts  = 1000
	assignmentURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// relayed measures the cost of the relay of a real pilot-agent: time and CPU of a push, beside an Envoy that calls the control
// plane directly, and memory.
func relayed(b *bench) error {
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	d := p.discovery
	if _, err := d.Write("hosts.yaml", namedServices(relayedHosts)); err != nil {
		return err
	}
	if err := d.Start(b.ctx); err != nil {
		return err
	}
	defer d.Stop()
	began := time.Now()
	direct, err := testbed.StartEnvoy(b.ctx, p.agent.Envoy, p.dir, testbed.Node{Name: "direct", Namespace: "shop", IP: "127.1.0.1", Discovery: d.GRPC})
	if err != nil {
		return err
	}
	defer direct.Stop()
	alone := time.Since(began)
	began = time.Now()
	node := testbed.Node{Name: "relayed", Namespace: "shop", IP: "127.1.0.2", Discovery: d.GRPC}
	a, err := testbed.StartAgent(p.agent, p.dir, node)
	if err != nil {
		return err
	}
	defer a.Stop()
	if err := a.AwaitReady(b.ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	b.record("relay-1k/ready", ready.Seconds())
	b.record("relay-1k/direct-ready", alone.Seconds())
	b.record("relay-1k/ready-ratio", ready.Seconds()/alone.Seconds())
	if err := b.pause(3 * time.Second); err != nil { // for Envoy, and for the file of the last known good configuration
		return err
	}
	memory, err := residentMemory(a.PID())
	if err != nil {
		return err
	}
	b.record("relay-1k/memory", memory)
	if err := b.relayCPU(d, a, direct); err != nil {
		return err
	}
	return b.relayDelay(d, filepath.Join(p.dir, node.Name, "XDS"))
}

// relayEdit changes the endpoint of a service.
func relayEdit(d *testbed.Discovery, n int) error {
	_, err := d.Write("edited.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: edited, namespace: shop}
spec: {hosts: [edited.example.com], addresses: [240.241.0.1], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 127.2.%d.%d}]}
`, n>>8&255, n&255))
	return err
}

// relayCPU compares the CPU time of the agent with the CPU time of an Envoy that needs no agent.
func (b *bench) relayCPU(d *testbed.Discovery, a *testbed.Agent, direct *testbed.Envoy) error {
	spent := func() (list [3]time.Duration, err error) {
		for i, pid := range []int{a.PID(), direct.PID(), d.PID()} {
			if list[i], err = usage.CPUTime(pid); err != nil {
				return list, err
			}
		}
		return list, nil
	}
	before, err := spent()
	if err != nil {
		return err
	}
	for n := range b.reps(1000) {
		ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
		began := time.Now()
		err := relayEdit(d, n)
		if err == nil {
			_, err = d.AwaitSettled(ctx, began)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	after, err := spent()
	if err != nil {
		return err
	}
	agent, others := after[0]-before[0], after[1]-before[1]+(after[2]-before[2])/2
	b.record("relay-1k/adds-cpu", 100*agent.Seconds()/others.Seconds())
	return nil
}

// relayDelay compares when an edit reaches a client of the relay and one that calls the control plane, and for comparison, two that call the
// control plane: these two differ only by other load on the machine.
func (b *bench) relayDelay(d *testbed.Discovery, socket string) error {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var arrivals [3]chan time.Time
	for i, to := range []struct{ address, ip string }{
		{"passthrough:///" + d.GRPC, "127.1.0.3"}, {"unix://" + socket, "127.1.0.4"}, {"passthrough:///" + d.GRPC, "127.1.0.5"},
	} {
		conn, err := grpc.NewClient(to.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // nothing is buffered
		arrivals[i] = make(chan time.Time, 10)
		if err := followEndpoints(ctx, conn, "sidecar~"+to.ip+"~client.shop~shop.svc.cluster.local", arrivals[i]); err != nil {
			return err
		}
	}
	var directly, through, adds, apart []float64
	for n := range b.reps(1000) {
		began := time.Now()
		if err := relayEdit(d, n+3); err != nil {
			return err
		}
		var at [3]time.Time
		for i, from := range arrivals {
			select {
			case at[i] = <-from:
			case <-time.After(30 * time.Second):
				return fmt.Errorf("an edit did not reach client %d", i)
			}
		}
		directly = append(directly, float64(at[0].Sub(began))/1e6)
		through = append(through, float64(at[1].Sub(began))/1e6)
		adds = append(adds, float64(at[1].Sub(at[0]))/1e6)
		apart = append(apart, float64(at[2].Sub(at[0]))/1e6)
	}
	for name, list := range map[string][]float64{"direct": directly, "through": through, "adds": adds, "apart": apart} {
		slices.Sort(list)
		b.record("relay-1k/"+name+"-p50", list[len(list)/2])
		b.record("relay-1k/"+name+"-p99", list[len(list)*99/100])
	}
	return nil
}

// followEndpoints subscribes to the endpoints of the edited service, and sends the time of each update to arrivals. It returns after the first one.
func followEndpoints(ctx context.Context, conn *grpc.ClientConn, node string, arrivals chan<- time.Time) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	const name = "outbound|80||edited.example.com"
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: node}, TypeUrl: assignmentURL, ResourceNamesSubscribe: []string{name},
	}); err != nil {
		return err
	}
	receive := func() error {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		return stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: assignmentURL, ResponseNonce: m.GetNonce()})
	}
	if err := receive(); err != nil {
		return err
	}
	go func() { // ends with ctx
		for receive() == nil {
			arrivals <- time.Now()
		}
	}()
	return nil
}
