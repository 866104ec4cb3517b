package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/testbed"
)

// What one namespace does at the same time, against the work of another one.
const (
	hostileBlocks, hostileIssuers, hostileSecrets = 300, 2000, 3000
	hostileCallers, hostileStreams, hostileWants  = 16, 40, 20_000
	hostileMetadata                               = 300 << 10 // bytes of labels
)

// neighbours measures what the load of one namespace costs another one. pilot-discovery is a process of its own. One proxy connects, a
// route changes and a certificate is renewed, first alone and then beside the load; the figures are ratios of medians.
func neighbours(b *bench) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := b.secured(dir)
	if err != nil {
		return err
	}
	if _, err := d.Write("good.yaml", goodRoute(1)); err != nil {
		return err
	}
	if err := d.Start(b.ctx); err != nil {
		return err
	}
	defer d.Stop()
	alone, err := b.work(d, "alone")
	if err != nil {
		return err
	}
	stop, err := burden(b.ctx, d)
	if err != nil {
		return err
	}
	beside, err := b.work(d, "beside")
	stop()
	if err != nil {
		return err
	}
	for name, ms := range alone {
		b.record("neighbour/"+name+"-alone", ms)
		b.record("neighbour/"+name+"-ratio", beside[name]/ms)
	}
	return nil
}

// goodRoute is the configuration of the namespace that works. Its versions differ in the time limit.
func goodRoute(seconds int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: good}
spec: {hosts: [web.good.test], addresses: [10.1.2.3], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: good}
spec: {hosts: [web.good.test], http: [{timeout: %ds, route: [{destination: {host: web.good.test}}]}]}
`, seconds)
}

// work returns the medians of what the working namespace does, in milliseconds.
func (b *bench) work(d *testbed.Discovery, phase string) (map[string]float64, error) {
	took := map[string][]float64{}
	watcher, err := newNewcomer(d, "good", "watcher-"+phase)
	if err != nil {
		return nil, err
	}
	defer watcher.conn.Close()
	routes, err := watcher.subscribe(b.ctx, resource.Route.URL(), "80")
	if err != nil {
		return nil, err
	}
	for i := range b.reps(30) {
		one, err := newNewcomer(d, "good", fmt.Sprint("proxy-", phase, i))
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		_, err = one.subscribe(b.ctx, resource.Cluster.URL())
		took["connect"] = append(took["connect"], millis(time.Since(begin)))
		_ = one.conn.Close()
		if err != nil {
			return nil, err
		}
		if begin, err = d.Write("good.yaml", goodRoute(2+i)); err != nil {
			return nil, err
		}
		if err := takeAnswer(routes); err != nil {
			return nil, err
		}
		took["route"] = append(took["route"], millis(time.Since(begin)))
		begin = time.Now()
		if err := watcher.certify(b.ctx); err != nil {
			return nil, err
		}
		took["certificate"] = append(took["certificate"], millis(time.Since(begin)))
	}
	// The next phase begins with another route than this one ends with.
	if _, err := d.Write("good.yaml", goodRoute(1)); err != nil {
		return nil, err
	}
	if err := takeAnswer(routes); err != nil {
		return nil, err
	}
	medians := map[string]float64{}
	for name, list := range took {
		slices.Sort(list)
		medians[name] = list[len(list)/2]
	}
	return medians, nil
}

// adsStream is a delta stream of an agent.
type adsStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// open opens a stream and subscribes. Without names, it is to everything.
func (a *newcomer) open(ctx context.Context, labels map[string]any, typeURL string, names ...string) (adsStream, error) {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.conn).DeltaAggregatedResources(a.shows(ctx), grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": a.namespace, "SERVICE_ACCOUNT": a.account, "ISTIO_VERSION": "1.31.0", "LABELS": labels})
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~192.168.0.1~%s.%s~%[2]s.svc.cluster.local", a.account, a.namespace)
	return stream, stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: id, Cluster: "x", Metadata: metadata}, TypeUrl: typeURL, ResourceNamesSubscribe: names,
	})
}

// subscribe opens a stream and waits for its first answer.
func (a *newcomer) subscribe(ctx context.Context, typeURL string, names ...string) (adsStream, error) {
	stream, err := a.open(ctx, map[string]any{"app": "web"}, typeURL, names...)
	if err != nil {
		return nil, err
	}
	return stream, takeAnswer(stream)
}

// takeAnswer takes an answer and acknowledges it.
func takeAnswer(stream adsStream) error {
	got, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.GetTypeUrl(), ResponseNonce: got.GetNonce()})
}

// burden starts everything that one namespace can do, and returns when it is under way. What is refused is tried again.
func burden(ctx context.Context, d *testbed.Discovery) (stop func(), err error) {
	if _, err := d.Write("evil.yaml", evilObjects(0)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	again := func(every time.Duration, do func(n int)) {
		group.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				do(n)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	again(2*time.Second, func(n int) { _, _ = d.Write("evil.yaml", evilObjects(n)) })
	for i := range hostileCallers {
		again(5*time.Millisecond, func(n int) { invent(ctx, d, fmt.Sprintf("caller-%d-%d", i, n)) })
	}
	for i := range hostileStreams {
		again(time.Second, func(n int) { demand(ctx, d, i, n) })
	}
	return func() { cancel(); group.Wait() }, nil
}

// evilObjects are wide blocks and issuers whose keys never come.
func evilObjects(generation int) string {
	var text strings.Builder
	for i := range hostileBlocks {
		fmt.Fprintf(&text, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: block-%d, namespace: evil, labels: {generation: "%d"}}
spec: {hosts: [block-%d.evil.test], addresses: ["0.0.0.0/%d"], resolution: NONE, exportTo: ["."], ports: [{number: %d, name: tcp, protocol: TCP}]}
`, i, generation, i, i%8, 7000+i+generation%2)
	}
	for i := range hostileIssuers {
		fmt.Fprintf(&text, `---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: issuer-%d, namespace: evil}
spec: {jwtRules: [{issuer: "i-%d", jwksUri: "https://198.51.100.%d/keys-%d", timeout: 60s}]}
`, i, i, i%250, i)
	}
	return text.String()
}

// invent asks for a certificate with an invented token.
func invent(ctx context.Context, d *testbed.Discovery, account string) {
	a, err := newNewcomer(d, "evil", account)
	if err != nil {
		return
	}
	defer a.conn.Close()
	a.token = a.token[:len(a.token)-4] + "AAAA"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = a.certify(ctx) // it is refused
}

// demand opens streams with all that a stream may want: labels, Secrets and endpoints without end.
func demand(ctx context.Context, d *testbed.Discovery, stream, n int) {
	a, err := newNewcomer(d, "evil", fmt.Sprint("proxy-", stream))
	if err != nil {
		return
	}
	defer a.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	labels := map[string]any{"app": "evil", "generation": fmt.Sprint(n)}
	kind, prefix, count := resource.Endpoint.URL(), "outbound|80||want-", hostileWants
	switch stream % 3 {
	case 0:
		labels["long"] = strings.Repeat("x", hostileMetadata)
	case 1:
		kind, prefix, count = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "kubernetes://secret-", hostileSecrets
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprint(prefix, stream, "-", i)
	}
	s, err := a.open(ctx, labels, kind, names...)
	for err == nil {
		err = takeAnswer(s) // until it is refused, or the time is over
	}
}
