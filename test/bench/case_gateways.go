package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// The gateways of the case: replicas of one gateway, whose hosts have a certificate each.
const (
	gatewayHosts    = 1000
	gatewayReplicas = 50
	gatewayPort     = 443
	gatewayEdits    = 40
	ownHosts        = 5000 // from here on, hosts have a Gateway of their own
)

func gatewayHost(i int) string { return fmt.Sprintf("h%d.shop.example", i) }

// gatewayOf is a Gateway for the hosts from one to another.
func gatewayOf(name string, from, to int) *api.Object {
	spec := &networking.Gateway{Selector: map[string]string{"gw": "front"}}
	for i := from; i < to; i++ {
		spec.Servers = append(spec.Servers, &networking.Server{
			Port:  &networking.Port{Number: gatewayPort, Name: fmt.Sprintf("https-%d", i), Protocol: "HTTPS"},
			Hosts: []string{gatewayHost(i)},
			Tls:   &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, CredentialName: fmt.Sprintf("secret-%d", i)},
		})
	}
	return object("edge", name, spec)
}

// gatewayRoute leads a host of a Gateway to a service; with each generation its path is another one.
func gatewayRoute(gateway string, i, generation int) *api.Object {
	return object("edge", fmt.Sprintf("route-%d", i), &networking.VirtualService{
		Hosts: []string{gatewayHost(i)}, Gateways: []string{gateway},
		Http: []*networking.HTTPRoute{{
			Match: []*networking.HTTPMatchRequest{{Uri: prefix(fmt.Sprintf("/%d", generation))}},
			Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "web.shop.example"}}},
		}},
	})
}

func gatewayWorld() *world {
	w := &world{services: 1, all: []*api.Object{gatewayOf("crowd", 0, gatewayHosts), object("edge", "web", &networking.ServiceEntry{
		Hosts: []string{"web.shop.example"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Resolution: networking.ServiceEntry_STATIC, Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.1"}},
	})}}
	for i := range gatewayHosts {
		w.all = append(w.all, gatewayRoute("crowd", i, 0))
	}
	return w
}

// gatewayClient is a replica. It subscribes as Envoy does, acknowledges everything, and keeps nothing.
type gatewayClient struct {
	bytes  atomic.Int64
	things [resource.VirtualHost + 1]atomic.Int64
}

// run speaks delta xDS until ctx ends. onDemand is the choice of the node.
func (c *gatewayClient) run(ctx context.Context, stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, i int, onDemand string) error {
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": "edge", "LABELS": map[string]any{"gw": "front"}, "ON_DEMAND_CERTIFICATES": onDemand})
	if err != nil {
		return err
	}
	node := &corev3.Node{
		Id: fmt.Sprintf("router~10.9.0.%d~front-%d.edge~edge.svc.cluster.local", i, i), Metadata: metadata, UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}}},
	}
	for _, t := range []resource.Type{resource.Cluster, resource.Listener} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t.URL()}); err != nil {
			return err
		}
		node = nil
	}
	secrets := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Secret.URL()}
	for i := range gatewayHosts {
		secrets.ResourceNamesSubscribe = append(secrets.ResourceNamesSubscribe, secretName(i, onDemand))
	}
	if err := stream.Send(secrets); err != nil {
		return err
	}
	asked := map[string]bool{}
	for ctx.Err() == nil {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		t, _ := resource.ParseType(response.GetTypeUrl())
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}); err != nil {
			return err
		}
		next := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Route.URL()}
		for _, r := range response.GetResources() {
			if t != resource.Listener {
				break
			}
			parsed, err := parse(t, r.GetResource())
			if err != nil {
				return err
			}
			for _, name := range parsed.Refs() {
				if !asked[name] {
					asked[name] = true
					next.ResourceNamesSubscribe = append(next.ResourceNamesSubscribe, name)
				}
			}
		}
		if len(next.ResourceNamesSubscribe) > 0 {
			if err := stream.Send(next); err != nil {
				return err
			}
		}
		c.bytes.Add(int64(proto.Size(response)))
		c.things[t].Add(int64(len(response.GetResources())))
	}
	return ctx.Err()
}

// gatewayBench is a control plane with its gateways.
type gatewayBench struct {
	*bench
	plane   *plane
	clients []*gatewayClient
	failed  chan error
}

// gatewayEdit is an edit and a type: each replica then gets at least one resource of the type.
type gatewayEdit struct {
	edit   edit
	values map[api.Key]kube.Value
	of     resource.Type
}

// gateways measures edits for replicas of a gateway with many hosts: with certificates on demand, and with a filter chain for each host.
func gateways(b *bench) error {
	for name, onDemand := range map[string]string{"gateway-1k": "true", "gateway-plain-1k": "false"} {
		if err := b.gatewaysWith(name, onDemand); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) gatewaysWith(name, onDemand string) error {
	b.release()
	secrets, err := newGatewaySecrets()
	if err != nil {
		return err
	}
	present, err := secrets.all()
	if err != nil {
		return err
	}
	p, err := serve(gatewayWorld(), gatewayCaller)
	if err != nil {
		return err
	}
	defer p.close()
	p.observe(present)
	conns, err := dial(p.addr, b.conns)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	g := &gatewayBench{bench: b, plane: p, failed: make(chan error, gatewayReplicas)}
	for i := range gatewayReplicas {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conns[i%len(conns)]).DeltaAggregatedResources(ctx)
		if err != nil {
			return err
		}
		c := &gatewayClient{}
		g.clients = append(g.clients, c)
		go func() { g.failed <- c.run(ctx, stream, i, onDemand) }()
	}
	first := resource.VirtualHost
	if onDemand == "false" {
		first = resource.Route
	}
	if err := g.await(first, make([]int64, gatewayReplicas), gatewayHosts); err != nil {
		return err
	}
	if err := g.await(resource.Secret, make([]int64, gatewayReplicas), gatewayHosts); err != nil {
		return err
	}
	if err := b.calm(); err != nil {
		return err
	}
	return g.edits(name, onDemand, secrets)
}

// edits measures the edits of each kind.
func (g *gatewayBench) edits(name, onDemand string, secrets *gatewaySecrets) error {
	rotations, err := secrets.rotations(g.reps(gatewayEdits))
	if err != nil {
		return err
	}
	last, added := resource.VirtualHost, resource.VirtualHost
	if onDemand == "false" {
		added = resource.Listener
	}
	n := gatewayHosts
	for kind, next := range map[string]func(i int) gatewayEdit{
		"route": func(i int) gatewayEdit {
			return gatewayEdit{edit: edit{set: []*api.Object{gatewayRoute("crowd", i, i+1)}}, of: last}
		},
		"host": func(int) gatewayEdit {
			n++
			return gatewayEdit{edit: edit{set: []*api.Object{gatewayOf("crowd", 0, n), gatewayRoute("crowd", n-1, 0)}}, of: added}
		},
		"gateway": func(i int) gatewayEdit {
			at, own := ownHosts+i, fmt.Sprintf("own-%d", i)
			return gatewayEdit{edit: edit{set: []*api.Object{gatewayOf(own, at, at+1), gatewayRoute(own, at, 0)}}, of: added}
		},
		"certificate": func(i int) gatewayEdit { return rotations[i] },
	} {
		if err := g.profiled(name+"-"+kind, func() error { return g.measure(name+"/"+kind, next) }); err != nil {
			return err
		}
	}
	return nil
}

// measure makes edits one after the other and records their cost.
func (g *gatewayBench) measure(name string, next func(i int) gatewayEdit) error {
	n := g.reps(gatewayEdits)
	var last []float64
	bytes, cpu := g.bytes(), cpuTime()
	for i := range n {
		e := next(i)
		was := g.things(e.of)
		begin := time.Now()
		if e.values != nil {
			g.plane.observe(e.values)
		} else {
			g.plane.apply(e.edit)
		}
		if err := g.await(e.of, was, 1); err != nil {
			return err
		}
		last = append(last, millis(time.Since(begin)))
	}
	if err := g.pause(g.sizes.settle / 2); err != nil {
		return err
	}
	g.record(name+"-cpu", millis(cpuTime()-cpu)/float64(n))
	g.record(name+"-bytes", float64(g.bytes()-bytes)/float64(n*gatewayReplicas)/kilobyte)
	g.record(name+"-last-p50", median(last))
	g.record(name+"-last-p99", quantile(last, 0.99))
	return nil
}

func (g *gatewayBench) bytes() (sum int64) {
	for _, c := range g.clients {
		sum += c.bytes.Load()
	}
	return sum
}

func (g *gatewayBench) things(t resource.Type) (list []int64) {
	for _, c := range g.clients {
		list = append(list, c.things[t].Load())
	}
	return list
}

// await waits until each replica has got n more resources of a type.
func (g *gatewayBench) await(t resource.Type, was []int64, n int64) error {
	const look = 200 * time.Microsecond
	for deadline := time.Now().Add(patience); ; {
		if err := g.pause(look); err != nil {
			return err
		}
		now := g.things(t)
		behind := -1
		for i := range now {
			if now[i] < was[i]+n {
				behind = i
			}
		}
		select {
		case err := <-g.failed:
			return fmt.Errorf("a gateway's stream: %w", err)
		default:
		}
		switch {
		case behind < 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("gateway %d got %d resources of %s within %v, want %d", behind, now[behind]-was[behind], t, patience, n)
		}
	}
}
