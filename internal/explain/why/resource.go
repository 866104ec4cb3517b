package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// maxWorkloads bounds how many of a service's WorkloadEntries are named.
const maxWorkloads = 10

// resource answers a question about one resource, or about one virtual host of a route configuration.
func (i *inquiry) resource(t resource.Type) {
	name := i.answer.Name
	if t == resource.Listener && strings.HasPrefix(name, "/") {
		name = socketScheme + name // pilotctl proxy-config shows the path alone.
		i.answer.Name = name
	}
	if r, ok := i.State.Get(t, name); ok {
		i.addFound(r, "")
		if t == resource.Listener {
			i.addReceiver(name)
		}
		return
	}
	if t == resource.Route && i.virtualHost(name) {
		return
	}
	switch t {
	case resource.Cluster, resource.Endpoint:
		i.whyNoCluster(t, name)
	case resource.Listener:
		i.whyNoListener(name)
	case resource.Route:
		i.whyNoRoute(name)
	}
}

// virtualHost answers a question about a virtual host named host:port. It reports whether there is one.
func (i *inquiry) virtualHost(name string) bool {
	host, port, ok := hostPort(name)
	if !ok {
		return false
	}
	host = i.fullHost(host)
	for rc := range i.State.Layers(resource.Route).All() {
		if p, ok := rc.Pieces().Get(omap.Name(route.PieceName(host, port))); ok && !p.Hidden() {
			i.answer.Name = envoy.VirtualHostName(host, port)
			i.addFound(rc, route.PieceName(host, port))
			return true
		}
	}
	return false
}

// hostPort splits host:port.
func hostPort(name string) (host string, port uint32, ok bool) {
	at := strings.LastIndexByte(name, ':')
	if at <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[at+1:], 10, 16)
	return name[:at], uint32(n), err == nil
}

// addFound adds a resource that the proxy is to have.
func (i *inquiry) addFound(r *resource.Resource, piece string) {
	i.answer.Verdict = reply.Served
	show := reply.Resource{Type: r.Type().String(), Name: r.Name(), Version: r.Version(), Bytes: r.Size()}
	if n := r.Pieces().Len(); n > 0 && piece == "" {
		show.Holds = plural(n, "virtual host") + "; ask about one as HOST:PORT"
	}
	if piece != "" {
		show.VirtualHost = i.answer.Name
		if p, ok := r.Pieces().Get(omap.Name(piece)); ok {
			hash := p.ContentHash()
			show.Version, show.Bytes = fmt.Sprintf("%x", hash[:]), p.Size()
		}
	}
	trace, traced := i.Queries.Trace(i.Graph, i.class, r.Type(), r.Name(), piece)
	if traced {
		if piece == "" {
			show.SharedBy = trace.SharedBy.Among(i.class)
		}
		i.addLeaves(trace.Leaves)
		if trace.SharedBy == class.SharedByWorkload {
			i.addWorkload()
		}
	}
	if r.Type() == resource.Endpoint {
		show.Holds = i.endpoints(r)
	}
	i.answer.Resources = append(i.answer.Resources, show)
	i.foundOnDemand(r, piece)
	for _, h := range i.rejections {
		if resource.Type(h.Type) == r.Type() && h.Name == r.Name() && (piece == "" || h.Piece == "" || h.Piece == piece) {
			i.answer.Verdict = reply.HeldBack
			i.addRejection(h)
		}
	}
}

// addRejection adds the reason that the proxy rejected the resource.
func (i *inquiry) addRejection(h class.ActiveRejection) {
	what := fmt.Sprintf("%v %s", resource.Type(h.Type), h.Name)
	if h.Piece != "" {
		what = "virtual host " + h.VirtualHost() + " of " + what
	}
	by := h.Object
	if by == (api.Key{}) && len(h.Objects) > 0 {
		by = blamed(resource.Type(h.Type), h.Objects)
	}
	fix := "change what it is made of: it is sent again as soon as its content differs"
	if h.Field != "" {
		fix = "change " + h.Field + ": it is sent again as soon as its content differs"
	}
	i.answer.Lists.StatedReasons = append(i.answer.Lists.StatedReasons, h.Cause())
	i.addReason(by, fix, "%s: the proxy rejected %s at %s and keeps what it had", h.Cause(), what, h.At.UTC().Format("15:04:05 MST on 2 January"))
}

// blamed is the most likely cause of a rejection among the objects behind a resource, which are sorted by kind. What a patch writes is checked least. Else
// a cluster is blamed on its policy, a virtual host on its routes, and a listener on none of these: it has little of a policy.
func blamed(t resource.Type, objects []api.Key) api.Key {
	if n := slices.IndexFunc(objects, func(k api.Key) bool { return k.Kind == api.KindEnvoyFilter }); n >= 0 {
		return objects[n]
	}
	switch t {
	case resource.Route:
		return objects[len(objects)-1]
	case resource.Listener:
		if n := slices.IndexFunc(objects, func(k api.Key) bool { return k.Kind != api.KindDestinationRule }); n >= 0 {
			return objects[n]
		}
	}
	return objects[0]
}

// addWorkload adds the objects that say what the proxy's workload serves.
func (i *inquiry) addWorkload() {
	id, ok := i.Queries.Services.Workload.Cell(i.Queries.Scope.Workload(i.proxy))
	if ok {
		i.addLeaves(i.Graph.Explain(id).Leaves())
	}
}

// clusterName is the parsed name of a cluster.
type clusterName struct {
	inbound bool
	port    uint32
	subset  string
	host    string
}

func parseCluster(name string) (c clusterName, ok bool) {
	f := strings.Split(name, "|")
	if len(f) != 4 || f[0] != "outbound" && f[0] != "inbound" {
		return c, false
	}
	port, err := strconv.ParseUint(f[1], 10, 16)
	return clusterName{f[0] == "inbound", uint32(port), f[2], f[3]}, err == nil
}

// whyNoCluster adds the reasons why there is no cluster, or no assignment, of a name. For a host it adds all of them.
func (i *inquiry) whyNoCluster(t resource.Type, name string) {
	c, ok := parseCluster(name)
	if !ok {
		i.clustersOf(t, name)
		return
	}
	if c.inbound {
		i.whyNoInbound(c.port)
		return
	}
	s := i.hostFor(i.fullHost(c.host))
	if !s.served() {
		i.whyNoHost(s)
		return
	}
	p, ok := s.service.Port(c.port)
	switch {
	case !ok:
		i.addReason(s.service.Declarations[0].Object, "", "%s has no port %d: it has %s", s.host, c.port, portList(s.service.Ports))
	case p.Protocol == mesh.UDP:
		i.addReason(s.service.Declarations[0].Object, "", "port %d of %s is UDP, which is not proxied", c.port, s.host)
	case c.subset != "" && !i.hasSubset(s, c.subset):
		i.whyNoSubset(s, c.subset)
	case t == resource.Cluster:
		i.whyNotRouted(s.host)
	case t == resource.Endpoint:
		i.addReason(s.service.Declarations[0].Object, "", "the cluster fetches no endpoints: its resolution is %s, its addresses are in the cluster itself", s.service.Resolution)
	}
}

// clustersOf adds all clusters or assignments of a host.
func (i *inquiry) clustersOf(t resource.Type, name string) {
	s := i.hostFor(i.fullHost(name))
	if !s.served() {
		i.whyNoHost(s)
		return
	}
	for _, p := range s.service.Ports {
		for _, cluster := range i.clusterNames(s, p.Number) {
			if r, ok := i.State.Get(t, cluster); ok {
				i.addFound(r, "")
			}
		}
	}
	switch {
	case len(i.answer.Resources) > 0:
	case t == resource.Cluster:
		i.whyNotRouted(s.host)
	case t == resource.Endpoint:
		i.addReason(s.service.Declarations[0].Object, "", "%s fetches no endpoints: its resolution is %s, its addresses are in the clusters themselves", s.host, s.service.Resolution)
	}
}

// whyNotRouted adds the reason if a gateway has no clusters of a host because none of its routes leads there.
func (i *inquiry) whyNotRouted(host string) {
	if !i.Queries.HasClustersOf(i.r, i.class, host) {
		i.addReason(api.Key{}, "route to it in a VirtualService that names a Gateway of the proxy, or start the control plane without PILOT_FILTER_GATEWAY_CLUSTER_CONFIG",
			"gateways have the clusters only of the services to which they route (PILOT_FILTER_GATEWAY_CLUSTER_CONFIG=true), and no route of this one leads to %s", host)
	}
}

// clusterNames are the names of the clusters that a port of a service may have, without and with subsets.
func (i *inquiry) clusterNames(s hostSeen, port uint32) []string {
	names := []string{envoy.OutboundCluster(port, "", s.host)}
	if policy, _ := i.Queries.Rules.Policy.Get(i.r, s.view); policy != nil {
		for _, subset := range policy.Subsets {
			names = append(names, envoy.OutboundCluster(port, subset.Name, s.host))
		}
	}
	return names
}

func (i *inquiry) hasSubset(s hostSeen, subset string) bool {
	return slices.ContainsFunc(i.clusterNames(s, 0), func(n string) bool { return n == envoy.OutboundCluster(0, subset, s.host) })
}

// whyNoSubset adds the rules that count, and the rules that have the subset and do not count.
func (i *inquiry) whyNoSubset(s hostSeen, subset string) {
	i.policy(s)
	count := 0
	for _, src := range i.answer.Sources {
		if src.Unused == "" {
			count++
		}
	}
	if count == 0 {
		i.addReason(api.Key{}, "write a DestinationRule with the subset", "no DestinationRule for %s is in force here, so there is no subset %q", s.host, subset)
	} else {
		i.addReason(i.answer.Sources[0].Object.Key(), "add the subset there", "the DestinationRules in force for %s have no subset %q", s.host, subset)
	}
	for _, src := range i.answer.Sources {
		rule, ok := i.Tables.DestinationRules.Peek(src.Object.Key())
		if !ok || src.Unused == "" {
			continue
		}
		for _, has := range rule.Spec.Subsets {
			if has.Name == subset {
				i.addReason(rule.Object, "", "it has the subset, but does not count here: %s", src.Unused)
			}
		}
	}
	i.addRefusedDocuments("DestinationRule")
}

func portList(ports []mesh.Port) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprintf("%d (%s)", p.Number, p.Protocol))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// whyNoInbound adds what the workload serves instead.
func (i *inquiry) whyNoInbound(port uint32) {
	i.addWorkload()
	var ports []string
	for p := range i.class.Inbound.All() {
		ports = append(ports, fmt.Sprintf("%d for %s", p.Number, p.Host))
	}
	where := strings.Join(i.proxy.Addresses, ", ")
	if len(ports) == 0 {
		i.addReason(api.Key{}, "", "no service of namespace %s has an endpoint at %s, so nothing is served there", i.proxy.Namespace, where)
		return
	}
	i.addReason(api.Key{}, "", "no service of namespace %s has an endpoint at %s with port %d; it serves %s", i.proxy.Namespace, where, port, strings.Join(ports, ", "))
}

// endpoints describes the content of an assignment. If it is empty, it adds the reasons.
func (i *inquiry) endpoints(r *resource.Resource) string {
	m, err := r.Proto()
	assignment, ok := m.(*endpointv3.ClusterLoadAssignment)
	c, named := parseCluster(r.Name())
	if err != nil || !ok || !named {
		return ""
	}
	n := 0
	for _, l := range assignment.Endpoints {
		n += len(l.LbEndpoints)
	}
	s := i.hostFor(c.host)
	if s.service == nil {
		return ""
	}
	i.selected(s)
	if n == 0 {
		i.noEndpoints(s, c.port, c.subset)
	}
	return plural(n, "endpoint")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// selected adds the WorkloadEntries that are endpoints of a service, which the graph reads as one list.
func (i *inquiry) selected(s hostSeen) {
	for _, declaration := range s.service.Declarations {
		e, ok := i.Tables.Endpoints.Peek(declaration.Object)
		if !ok || len(e.Selector) == 0 {
			continue
		}
		list := i.Queries.Services.SelectedEndpoints.Get(i.r, service.Select(declaration.Object.Namespace, e.Selector))
		listed := 0
		for name := range list.All() {
			if listed++; listed > maxWorkloads {
				break
			}
			i.addSource(api.Key{Kind: api.KindWorkloadEntry, Namespace: declaration.Object.Namespace, Name: string(name)}, "endpoint", "", 0)
		}
	}
}
