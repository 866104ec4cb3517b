package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/testbed"
)

// neighbours measures how the load of one namespace slows another one. pilot-discovery is a process of its own. One proxy connects, a
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
	load, err := b.apart(apartTask{Hostile: &hostileTask{Server: d.Secure, ConfigDir: d.ConfigDir, StateDir: d.StateDir}})
	if err != nil {
		return err
	}
	if err := load.expect(saysReady); err != nil {
		return errors.Join(err, load.end())
	}
	beside, err := b.work(d, "beside")
	if err = errors.Join(err, load.end()); err != nil {
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

// work returns the median times of the steps of the working namespace, in milliseconds.
func (b *bench) work(d *testbed.Discovery, phase string) (map[string]float64, error) {
	took := map[string][]float64{}
	watcher, err := newNewcomer(d, "good", "watcher-"+phase)
	if err != nil {
		return nil, err
	}
	defer watcher.conn.Close() //nolint:errcheck // nothing is buffered
	routes, err := watcher.subscribe(b.ctx, resource.Route.URL(), "80")
	if err != nil {
		return nil, err
	}
	for i := range b.reps(300) {
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
