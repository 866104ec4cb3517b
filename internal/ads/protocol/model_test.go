package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// proxy is a model of an Envoy. It subscribes to clusters and listeners, then to the endpoints of its clusters and the routes of
// its listeners. It rejects content whose mark begins with "bad". Of a rejected response it applies the good clusters and
// listeners, but no endpoints and routes; if unspecific is set, it applies nothing. It checks that it never has a route to a
// cluster it does not have.
type proxy struct {
	variant    Variant
	unspecific bool // whether its NACKs name nothing
	node       bool // whether it was sent on this stream

	clusters, endpoints, listeners map[string]string
	routes                         map[string]*routev3.RouteConfiguration
	answered                       map[string]bool // assignments that were answered, perhaps with "does not exist"
	blind                          bool            // set after a State-of-the-World reconnect: the server cannot know which routes to hold back
	versions                       [resource.Types]map[string]string
	asked                          [resource.Types]map[string]bool
	nonce                          [resource.Types]string

	out [][]byte // requests that the core has not received
	// warming is set while a cluster warms. Like Envoy, the proxy sends no CDS requests until it is warm. They are in
	// keptRequests until then.
	warming      bool
	keptRequests [][]byte
	// cdsPaused is set if a cluster was warming when the last stream ended. Like Envoy, the proxy then asks for clusters only when
	// all its assignments are answered (envoy, ClusterManagerImpl::updateClusterCounts pauses the type, not the stream).
	cdsPaused bool
	// startedPaused is set if cdsPaused was set at the beginning of the stream. Routes wait for the CDS request only for Patience.
	startedPaused bool
	late          bool // whether its answers may become overdue
	faults        []string
	// refused are names that were bad once. The first listeners and routes do not wait for the acknowledgement of their clusters,
	// so they may refer to clusters that the proxy rejects.
	refused map[string]bool
	// table has the virtual hosts of route configurations in the split form.
	table  *hostTable
	exists func(cluster string) bool // in the newest state
}

func newProxy(v Variant, unspecific bool) *proxy {
	p := &proxy{
		variant: v, unspecific: unspecific, clusters: map[string]string{}, endpoints: map[string]string{}, listeners: map[string]string{},
		routes: map[string]*routev3.RouteConfiguration{}, answered: map[string]bool{}, refused: map[string]bool{},
		table: newHostTable(),
	}
	for t := range p.versions {
		p.versions[t], p.asked[t] = map[string]string{}, map[string]bool{}
	}
	return p
}

// connect begins a stream and sends the first requests of all types.
func (p *proxy) connect() {
	p.node, p.out, p.nonce = false, nil, [resource.Types]string{}
	p.warming, p.keptRequests = false, nil
	if p.variant == StateOfTheWorld {
		// The server does not know what the proxy has, so its routes may refer to clusters that were removed.
		clear(p.routes)
		p.blind = true
	}
	p.cdsPaused = !p.warmed()
	p.startedPaused = p.cdsPaused
	for _, t := range []resource.Type{resource.Cluster, resource.Endpoint, resource.Listener, resource.Route} {
		if !t.Wildcard() && len(p.asked[t]) == 0 || t == resource.Cluster && p.cdsPaused {
			continue
		}
		p.request(t, slices.Sorted(maps.Keys(p.asked[t])), nil, nil, true)
	}
	if p.table.subscribed {
		p.table.nonce = ""
		p.requestHosts(p.table.versions, nil)
	}
}

// warmed reports whether every assignment that is asked for was answered.
func (p *proxy) warmed() bool {
	for n := range p.asked[resource.Endpoint] {
		if !p.answered[n] {
			return false
		}
	}
	return true
}

// requestPausedCDS asks for clusters if that waited only for assignments.
func (p *proxy) requestPausedCDS() {
	if p.cdsPaused && p.warmed() {
		p.cdsPaused = false
		p.request(resource.Cluster, nil, nil, nil, true)
	}
}

func (p *proxy) request(t resource.Type, sub, drop []string, err error, first bool) {
	var node *corev3.Node
	if !p.node {
		node, p.node = &corev3.Node{Id: "model"}, true
	}
	detail := statusOf(err)
	var m proto.Message
	if p.variant == Delta {
		q := &discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: t.URL(), ErrorDetail: detail, ResourceNamesSubscribe: sub, ResourceNamesUnsubscribe: drop,
		}
		if first {
			q.InitialResourceVersions = p.versions[t]
		} else if len(sub)+len(drop) == 0 {
			q.ResponseNonce = p.nonce[t]
		}
		m = q
	} else {
		m = &discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: t.URL(), ErrorDetail: detail, ResponseNonce: p.nonce[t],
			ResourceNames: slices.Sorted(maps.Keys(p.asked[t])),
		}
	}
	raw, _ := proto.Marshal(m)
	if p.warming && t == resource.Cluster {
		p.keptRequests = append(p.keptRequests, raw)
		return
	}
	p.out = append(p.out, raw)
}

func statusOf(err error) *statuspb.Status {
	if err == nil {
		return nil
	}
	return &statuspb.Status{Code: 13, Message: err.Error()}
}

// warm ends the warming of clusters, so that the proxy sends the requests it kept.
func (p *proxy) warm() {
	p.out, p.keptRequests, p.warming = append(p.out, p.keptRequests...), nil, false
}

// ask changes the subscription of a type to want.
func (p *proxy) ask(t resource.Type, want map[string]bool) {
	var sub, drop []string
	for _, n := range slices.Sorted(maps.Keys(want)) {
		if !p.asked[t][n] {
			sub = append(sub, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.asked[t])) {
		if !want[n] {
			drop = append(drop, n)
			delete(p.versions[t], n)
			if t == resource.Endpoint {
				delete(p.endpoints, n)
				delete(p.answered, n)
			} else {
				delete(p.routes, n)
				p.table.drop(n)
			}
		}
	}
	if len(sub)+len(drop) == 0 {
		return
	}
	first := len(p.asked[t]) == 0 && p.nonce[t] == ""
	p.asked[t] = want
	p.request(t, sub, drop, nil, first && len(p.versions[t]) == 0)
}

// change is one resource of a response; m is nil for a removal.
type change struct {
	name, version string
	m             proto.Message
}

// receive applies a response and answers it.
func (p *proxy) receive(a Action) {
	t := a.Type
	if t == resource.VirtualHost {
		p.receiveHosts(a)
		return
	}
	var changes []change
	var full bool
	if p.variant == Delta {
		var m discoveryv3.DeltaDiscoveryResponse
		p.check(proto.Unmarshal(wire(a), &m))
		for _, r := range m.Resources {
			changes = append(changes, change{r.Name, r.Version, p.open(r.Resource.UnmarshalNew())})
		}
		for _, n := range m.RemovedResources {
			changes = append(changes, change{name: n})
		}
		p.nonce[t] = m.Nonce
	} else {
		var m discoveryv3.DiscoveryResponse
		p.check(proto.Unmarshal(wire(a), &m))
		for _, r := range m.Resources {
			msg := p.open(r.UnmarshalNew())
			name, _, _ := strings.Cut(strings.Replace(show(msg), "[", "=", 1), "=")
			changes = append(changes, change{name, "v", msg})
		}
		full, p.nonce[t] = t.Wildcard(), m.Nonce
	}
	if full {
		changes = append(changes, p.absent(t, changes)...)
	}
	err := p.take(t, changes)
	// Envoy sends new subscriptions before the acknowledgement.
	switch t {
	case resource.Cluster:
		want := map[string]bool{}
		for n := range p.clusters {
			want[n] = true
		}
		p.ask(resource.Endpoint, want)
	case resource.Listener:
		want := map[string]bool{}
		for _, to := range p.listeners {
			want[to] = true
		}
		p.ask(resource.Route, want)
	}
	p.request(t, nil, nil, err, false)
	p.requestPausedCDS()
	p.coherent(t)
}

func (p *proxy) absent(t resource.Type, list []change) (removed []change) {
	have := p.clusters
	if t == resource.Listener {
		have = p.listeners
	}
	for n := range have {
		if !slices.ContainsFunc(list, func(c change) bool { return c.name == n }) {
			removed = append(removed, change{name: n})
		}
	}
	return removed
}

func (p *proxy) open(m proto.Message, err error) proto.Message {
	p.check(err)
	return m
}

func (p *proxy) check(err error) {
	if err != nil {
		p.fault("%v", err)
	}
}

func (p *proxy) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

func isBad(text string) bool { return strings.Contains(text, "=bad") }

// take applies changes, and returns an error that names the bad ones.
func (p *proxy) take(t resource.Type, changes []change) error {
	var bad []string
	for _, c := range changes {
		if c.m != nil && isBad(show(c.m)) {
			bad = append(bad, p.badNames(c))
			p.refused[c.name] = true
		}
	}
	for _, c := range changes {
		if len(bad) > 0 && p.unspecific {
			p.refused[c.name] = true
		}
	}
	if t == resource.Endpoint {
		for _, c := range changes {
			p.answered[c.name] = true
		}
	}
	for _, c := range changes {
		if !t.Wildcard() && !p.asked[t][c.name] {
			continue // The proxy has unsubscribed from it since it was sent.
		}
		if c.m != nil && isBad(show(c.m)) || len(bad) > 0 && (p.unspecific || !t.Wildcard()) {
			continue
		}
		p.apply(t, c)
	}
	switch {
	case len(bad) == 0:
		return nil
	case p.unspecific:
		return fmt.Errorf("rejected")
	}
	return fmt.Errorf("Error adding/updating %s: bad", strings.Join(bad, ", "))
}

// badNames names the bad parts of a resource: virtual hosts of a route configuration, else the resource itself.
func (p *proxy) badNames(c change) string {
	r, ok := c.m.(*routev3.RouteConfiguration)
	if !ok {
		return c.name
	}
	if r.Vhds != nil {
		return c.name
	}
	var names []string
	for _, v := range r.VirtualHosts {
		if strings.HasPrefix(v.RequestHeadersToRemove[0], "bad") {
			names = append(names, v.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (p *proxy) apply(t resource.Type, c change) {
	if c.m == nil {
		delete(p.versions[t], c.name)
	} else {
		p.versions[t][c.name] = c.version
	}
	switch t {
	case resource.Cluster:
		set1(p.clusters, c)
	case resource.Endpoint:
		set1(p.endpoints, c)
	case resource.Listener:
		if c.m == nil {
			delete(p.listeners, c.name)
			return
		}
		// The world's rule: the listener lN fetches the route rN.
		p.listeners[c.name] = "r" + strings.TrimPrefix(c.name, "l")
	case resource.Route:
		if c.m == nil {
			return // Envoy keeps a removed route configuration.
		}
		r := c.m.(*routev3.RouteConfiguration)
		if r.Vhds != nil {
			p.takeHead(r)
		}
		p.routes[c.name] = r
	}
}

func set1(m map[string]string, c change) {
	if c.m == nil {
		delete(m, c.name)
		return
	}
	_, mark, _ := strings.Cut(show(c.m), "=")
	m[c.name] = mark
}

// coherent checks that every route refers to a cluster that the proxy has.
func (p *proxy) coherent(after resource.Type) {
	if p.late && (len(p.refused) > 0 || p.startedPaused) {
		return // The server stopped waiting for a NACK or a CDS request, and assumed that the clusters exist.
	}
	for name, r := range p.routes {
		for _, v := range p.whole(r).VirtualHosts {
			for _, to := range v.ResponseHeadersToRemove {
				if _, ok := p.clusters[to]; !ok && !p.refused[to] {
					p.fault("after a %s response: route %s, virtual host %s points at cluster %s, which the proxy does not have", after, name, v.Name, to)
				} else if after == resource.Route && !p.answered[to] && p.exists(to) && !p.blind && !p.refused[to] && !p.late {
					p.fault("route %s came before the endpoints of cluster %s", name, to)
				}
			}
		}
	}
}

// holds lists everything that the proxy has, in the notation of world.
func (p *proxy) holds() string {
	var all []string
	for t, m := range map[string]map[string]string{"CDS": p.clusters, "EDS": p.endpoints} {
		for n, mark := range m {
			all = append(all, t+" "+n+"="+mark)
		}
	}
	for n := range p.listeners {
		all = append(all, "LDS "+n)
	}
	for _, r := range p.routes {
		all = append(all, "RDS "+show(p.whole(r)))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
