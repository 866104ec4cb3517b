package why

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// maxReasons bounds how many objects are named for one cause.
const maxReasons = 5

// hostSeen is a host as the proxy sees it.
type hostSeen struct {
	host string
	view service.HostView
	// service is nil if the view has no service.
	service *service.Service
	// inScope says that the proxy's set has the host.
	inScope bool
}

// served reports whether the proxy has the service.
func (s hostSeen) served() bool { return s.service != nil && s.inScope }

// declared is the view for service.Declarations: its viewer is the namespace even if the host looks there as in the base
// view.
func (s hostSeen) declared(namespace string) service.HostView {
	return service.HostView{Host: s.host, Viewer: namespace, Declarer: s.view.Declarer}
}

func (i *inquiry) hostFor(host string) hostSeen {
	in := scope.HostInSet{Host: host, Set: i.set}
	s := hostSeen{host: host, view: i.Queries.Scope.View(i.r, in), inScope: true}
	s.service, _ = i.Queries.Services.Service.Get(i.r, s.view)
	if !i.set.Overlay() {
		s.inScope = i.Queries.Scope.Hosts(i.r, i.set).Has(omap.Name(host))
	}
	return s
}

// fullHost is the host that a user meant: with or without a port, short or in full.
func (i *inquiry) fullHost(name string) string {
	host, _, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(name, ".")), "/")
	if at := strings.LastIndexByte(host, ':'); at > 0 && !strings.Contains(host[:at], ":") {
		host = host[:at]
	}
	return i.meant(i.r, host, i.class.Namespace)
}

// meant is the host that a name means in a namespace; the name itself if no object names such a host.
func (m Mesh) meant(r *query.Reader, host, namespace string) string {
	declared := func(host string) bool { return m.Tables.ByHost.Group(r, host).Len() > 0 }
	if declared(host) {
		return host
	}
	domain := m.Tables.Domain()
	for _, full := range []string{mesh.FullHost(host, namespace, domain), host + ".svc." + domain, host + "." + domain} {
		if declared(full) {
			return full
		}
	}
	return host
}

// host answers a question about a host.
func (i *inquiry) host() {
	s := i.hostFor(i.fullHost(i.answer.Name))
	i.answer.Name = s.host
	i.declarations(s)
	i.routes(s)
	i.policy(s)
	i.selectingPolicies(s.host)
	if !s.inScope || s.service == nil && !i.routesOnly(s) {
		i.whyNoHost(s)
		return
	}
	i.answer.Verdict = reply.Served
	if from := i.Queries.Scope.ImportedThrough(i.r, scope.HostInSet{Host: s.host, Set: i.set}); from != "" {
		i.addReason(i.class.Sidecar, "", "the Sidecar does not name it, but lets %s in, whose routes lead here", from)
	}
	if s.service == nil {
		ports := i.routedPorts(s)
		i.addReason(api.Key{}, "", "no ServiceEntry declares %s: there are only routes for it, on port %s", s.host, portList(ports))
		for _, p := range ports {
			i.answer.Ports = append(i.answer.Ports, i.port(s, p))
		}
		return
	}
	for _, p := range s.service.Ports {
		i.answer.Ports = append(i.answer.Ports, i.port(s, p))
	}
	i.hostOnDemand(s)
	for _, h := range i.rejections {
		for _, p := range i.answer.Ports {
			if slices.Contains(p.Clusters, h.Name) || p.Listener == h.Name || p.Route == h.Name && (h.Piece == "" || h.VirtualHost() == p.VirtualHost) {
				i.answer.Verdict = reply.HeldBack
				i.addRejection(h)
				break
			}
		}
	}
}

func (i *inquiry) routesOnly(s hostSeen) bool {
	f, ok := i.Queries.Services.Footprint(i.r, s.view)
	return ok && s.service == nil && len(f.HTTPPorts) > 0
}

// routedPorts are the ports with routes for a host without a service.
func (i *inquiry) routedPorts(s hostSeen) []mesh.Port {
	f, _ := i.Queries.Services.Footprint(i.r, s.view)
	var ports []mesh.Port
	for _, n := range f.HTTPPorts {
		ports = append(ports, mesh.Port{Number: n, Protocol: mesh.HTTP})
	}
	return ports
}

// declarations adds the objects that declare the host, and whether they are used.
func (i *inquiry) declarations(s hostSeen) {
	claims, view := i.Tables.ByHost.Group(i.r, s.host), s.declared(i.class.Namespace)
	for c, status := range service.Declarations(claims, view) {
		unused := ""
		switch status {
		case service.DeclarationUsed:
		case service.DeclarationOverruled:
			unused = fmt.Sprintf("the declaration of namespace %s comes before it", view.DeclaringNamespace(claims))
		case service.DeclarationNotExported:
			unused = i.exportedTo(c.Object())
		}
		i.addSource(c.Object(), "service", unused, 0)
	}
}

// exportedTo says which namespaces see an object.
func (i *inquiry) exportedTo(k api.Key) string {
	c, ok := i.Tables.Claims.Peek(k)
	if !ok {
		return "exported to no namespace"
	}
	return fmt.Sprintf("exported to namespace %s only", strings.Join(c.Layers, ", "))
}

// routes adds the VirtualServices for the host in the order of precedence, then the VirtualServices that do not count.
func (i *inquiry) routes(s hostSeen) {
	list, _ := i.Queries.Rules.Routes.Get(i.r, s.view)
	for n, vs := range list {
		part := "routes"
		if n > 0 {
			part = "routes, after those above"
		}
		i.addSource(vs.Object, part, "", 0)
	}
	for _, c := range i.claims(s.host, claim.Route) {
		if !slices.ContainsFunc(list, func(vs *state.VirtualService) bool { return vs.Object == c.Object() }) {
			unused := i.exportedTo(c.Object())
			if s.view.ExcludedRoutes.Has(c.Object()) {
				unused = fmt.Sprintf("%s does not let in rules of namespace %s for such hosts", i.class.Sidecar, c.Namespace)
			}
			i.addSource(c.Object(), "routes", unused, 0)
		}
	}
}

// policy adds the DestinationRules for the host: first the ones that were merged into its policy, then the others.
func (i *inquiry) policy(s hostSeen) {
	policy, _ := i.Queries.Rules.Policy.Get(i.r, s.view)
	home := ""
	if policy != nil {
		home = policy.Objects[0].Namespace
		for _, k := range policy.Objects {
			i.addSource(k, "policy", "", 0)
		}
	}
	for _, c := range i.claims(s.host, claim.Policy) {
		k := c.Object()
		if policy != nil && slices.Contains(policy.Objects, k) {
			continue
		}
		unused := ""
		switch {
		case !c.VisibleTo(i.class.Namespace):
			unused = i.exportedTo(k)
		case policy == nil:
			unused = fmt.Sprintf("rules are looked up in the caller's namespace, the service's and %s, not in %s", i.Tables.RootNamespace(i.r), k.Namespace)
		case k.Namespace == home:
			unused = "a rule for a narrower host comes before it"
		default:
			unused = fmt.Sprintf("the rules of namespace %s come before the rules of %s", home, k.Namespace)
		}
		i.addSource(k, "policy", unused, 0)
	}
}

// selectingPolicies adds the DestinationRules for the host that have a workload selector. They have no claims.
func (i *inquiry) selectingPolicies(host string) {
	for at := range i.Tables.SelectingPolicies.Group(i.r, i.class.Namespace).All() {
		rule, ok := i.Tables.DestinationRules.Peek(at.Key)
		if !ok || rule.Host != host && !coveredBy(rule.Host, host) {
			continue
		}
		unused := ""
		if !i.class.Rules.Has(at.Key.Name) {
			unused = "its workloadSelector does not select this proxy"
		}
		i.addSource(at.Key, "policy of selected workloads", unused, 0)
	}
}

// coveredBy reports whether a pattern covers a host.
func coveredBy(pattern, host string) bool {
	for p := range mesh.Patterns(host) {
		if p == pattern {
			return true
		}
	}
	return false
}

// claims lists the claims of a kind on a host and on the patterns that cover it, each object once.
func (i *inquiry) claims(host string, kind claim.Kind) []claim.Claim {
	var list []claim.Claim
	add := func(of string) {
		for c := range i.Tables.ByHost.Group(i.r, of).All() {
			at := slices.IndexFunc(list, func(o claim.Claim) bool { return o.Namespace == c.Namespace && o.Name == c.Name })
			switch {
			case c.Kind != kind:
			case at < 0:
				list = append(list, c)
			case c.VisibleTo(i.class.Namespace):
				list[at] = c
			}
		}
	}
	add(host)
	for pattern := range mesh.Patterns(host) {
		add(pattern)
	}
	return list
}

// whyNoHost adds the reasons why the proxy does not have a host.
func (i *inquiry) whyNoHost(s hostSeen) {
	claims := i.Tables.ByHost.Group(i.r, s.host)
	if home := service.DeclaringNamespace(claims, i.class.Namespace); !s.inScope && home != "" {
		i.addReason(i.class.Sidecar, fmt.Sprintf("add %q to spec.egress[].hosts", home+"/"+s.host),
			"the Sidecar lets only the hosts of its egress in, and %s is not one of them", s.host)
	}
	if s.service != nil {
		return
	}
	named := map[api.Key]bool{}
	for c, status := range service.Declarations(claims, s.declared(i.class.Namespace)) {
		if k := c.Object(); status == service.DeclarationNotExported && !named[k] && len(named) < maxReasons {
			named[k] = true
			i.addReason(k, fmt.Sprintf("add %q to its spec.exportTo", i.class.Namespace), "it declares %s, but is %s", s.host, i.exportedTo(k))
		}
	}
	if len(named) > 0 {
		return
	}
	if i.addUnexported(s.host) {
		return
	}
	i.addReason(api.Key{}, "", "no Service and no ServiceEntry in force declares %s", s.host)
	if i.addCoveringPattern(s.host) {
		return
	}
	i.addRefusedDocuments(api.KindServiceEntry)
	i.answer.Lists.Names = append(i.answer.Lists.Names, i.hostNames())
}

// addUnexported adds the objects that declare a host and are exported to no namespace. They have no claim by which they
// could be found.
func (i *inquiry) addUnexported(host string) (found bool) {
	for k := range i.Tables.Kinds.Group(i.r, api.KindServiceEntry).All() {
		if _, claimed := i.Tables.Claims.Peek(k); claimed {
			continue
		}
		o, _ := i.Tables.Objects.Peek(k)
		spec, ok := o.Spec.(*networking.ServiceEntry)
		if ok && slices.ContainsFunc(spec.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
			i.addReason(k, fmt.Sprintf("add %q to its spec.exportTo", i.class.Namespace), "it declares %s, but is exported to no namespace", host)
			found = true
		}
	}
	return found
}

// addCoveringPattern adds the declaration of a pattern that covers the host.
func (i *inquiry) addCoveringPattern(host string) bool {
	for pattern := range mesh.Patterns(host) {
		if s := i.hostFor(pattern); s.served() {
			i.addReason(s.service.Declarations[0].Object, "", "requests for it go to %s; ask about that", pattern)
			return true
		}
	}
	return false
}

// addRefusedDocuments adds the documents of a kind that were refused as invalid. Their declarations are unknown.
func (i *inquiry) addRefusedDocuments(kind string) {
	named := map[api.Key]bool{}
	for _, p := range i.Problems.All() {
		if p.Severity != api.Error || p.Object.Kind != kind && p.Object.Kind != "" || named[p.Object] || len(named) == maxReasons {
			continue
		}
		if _, inForce := i.Tables.Objects.Peek(p.Object); inForce {
			continue
		}
		named[p.Object] = true
		r := reply.Reason{Text: "a document was refused, and may declare it: " + p.Reason, Object: new(reply.RefTo(p.Object, p.Position))}
		i.answer.Reasons = append(i.answer.Reasons, r)
		i.answer.Lists.StatedReasons = append(i.answer.Lists.StatedReasons, p.Reason)
	}
}

// hostNames yields the hosts that the proxy sees. The sets are taken now and iterated later.
func (i *inquiry) hostNames() func(yield func(string) bool) {
	sets := []scope.Hosts{i.Queries.Scope.Hosts(i.r, i.set)}
	if i.set.Overlay() {
		sets = append(sets, i.Queries.Services.PublicHosts(i.r))
	}
	return func(yield func(string) bool) {
		for _, set := range sets {
			for host := range set.All() {
				if !yield(string(host)) {
					return
				}
			}
		}
	}
}
