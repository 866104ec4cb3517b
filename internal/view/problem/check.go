package problem

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

func (f *findings) serviceEntry() {
	spec, ok := f.q.tables.Services.Get(f.r, f.key)
	if !ok {
		return
	}
	for i, p := range spec.Ports {
		if f.q.tables.CapturePorts(f.r).Reserved(p.Number, false) {
			f.fail("port-reserved", fmt.Sprintf("spec.ports[%d].number", i), "port %d is the proxy's own: the service cannot be reached there", p.Number)
		}
	}
	if who, ok := f.q.tables.Identities.Get(f.r, f.key); ok && len(who.Selector) > 0 && !f.q.services.SelectsWorkload(f.r, f.key.Namespace, who.Selector) {
		f.warn("selector-no-endpoint", "spec.workloadSelector", "no WorkloadEntry or pod of namespace %q has the labels %s: the service has no endpoints, and traffic to it fails",
			f.key.Namespace, mesh.FormatLabels(who.Selector))
	}
	f.wideBlocks(spec)
	for at, c := range f.claims("spec.hosts") {
		for o := range c.older(f.key) {
			if o.Namespace != f.key.Namespace && o.IsService() {
				f.conflict("host-declared-twice", at, "%s has %q, and a Service goes before ServiceEntries of other namespaces: this declaration is seen in namespace %q only; give the host another name", o.Object(), c.host, f.key.Namespace)
				break
			}
			if o.Namespace != f.key.Namespace {
				f.conflict("host-declared-twice", at, "%s is older and declares %q too: this declaration is seen in namespace %q only", o.Object(), c.host, f.key.Namespace)
				break
			}
			if first, ok := f.q.tables.Services.Get(f.r, o.Object()); ok {
				f.merged(at, c.host, o, spec, first)
			}
			break
		}
		f.nameOfService(at, c)
		f.bareName(at, c)
		f.addresses(c.host)
		f.shortNames(at, c.host, spec)
	}
}

// wideBlocks warns of blocks that have much of a range from which addresses are allocated.
func (f *findings) wideBlocks(spec *mesh.Service) {
	for i, text := range spec.Addresses {
		block, err := netip.ParsePrefix(text)
		if i == maxChecked || err != nil || block.IsSingleIP() {
			continue
		}
		if of, ok := f.q.tables.Ranges().Covers(block); ok {
			f.conflict("address-range-allocated", fmt.Sprintf("spec.addresses[%d]", i), "%s has addresses of %s, which are allocated to other ServiceEntries: these keep them, and connections there do not reach this service; name narrower blocks, or have addresses allocated from another range", text, of)
		}
	}
}

// nameOfService warns of a host that is a name of a Service of another namespace: clients that see the Service do not see the host.
func (f *findings) nameOfService(at string, c hostClaims) {
	if owner, ok := f.q.services.AnyNameOwner(f.r, c.host, f.key.Namespace); ok {
		f.conflict("host-name-taken", at, "%q is a name of %s, which goes before ServiceEntries of other namespaces: this declaration has no effect for clients that see the Service; give the host another name", c.host, owner)
	}
}

// bareName warns of a host without a dot that is the name of a Service: for clients in the Service's namespace the host means that Service.
func (f *findings) bareName(at string, c hostClaims) {
	if strings.Contains(c.host, ".") || mesh.IsWildcard(c.host) {
		return
	}
	for s := range f.q.tables.BareNames.Group(f.r, c.host).All() {
		if s.Namespace == f.key.Namespace || !s.VisibleTo(s.Namespace) || !meets(c.own.Layers, s.Namespace, f.key.Namespace) {
			continue
		}
		f.conflict("host-name-taken", at, "%q means %s in namespace %q: this declaration has no effect for clients there; give the host another name", c.host, s.Object(), s.Namespace)
		return
	}
}

// shortNames warns of short names of a cluster host that do not reach it, because another object declares a host with that name.
func (f *findings) shortNames(at, host string, spec *mesh.Service) {
	names := mesh.ShortNames(host, f.q.tables.Domain())
	bare, of, ok := mesh.ClusterHost(host, f.q.tables.Domain())
	if ok {
		names = append(names, bare)
	}
	for _, short := range names {
		claims := f.q.tables.ByHost.Group(f.r, short)
		home, checked := service.DeclaringNamespace(claims, ""), 0
		for c := range claims.All() {
			if checked++; c.Kind > claim.Route || checked > maxChecked {
				break // claims are ordered by kind
			}
			both := shared(spec, f.requestPorts(c))
			if len(both) == 0 {
				continue
			}
			if owner, ok := f.q.services.NameOwner(f.r, short, c.Layer); ok && owner.Namespace != c.Namespace && c.Kind == claim.Service {
				continue
			}
			who := ""
			switch {
			case short == bare:
				if !c.VisibleTo(of) {
					continue
				}
				who = fmt.Sprintf(" from namespace %q", of)
			case c.Layer != "":
				who = fmt.Sprintf(" from namespace %q", c.Layer)
			case c.Kind == claim.Service && c.Namespace != home:
				who = fmt.Sprintf(" from namespace %q", c.Namespace)
			}
			f.conflict("host-name-taken", at, "%s declares the host %q, which goes before a short name: requests%s for it on port %s do not reach %q; call that by its full name",
				c.Object(), short, who, strings.Join(both, ", "), host)
		}
	}
}

// requestPorts returns the ports where requests may be routed to a claim's host by their Host header.
func (f *findings) requestPorts(c claim.Claim) []mesh.Port {
	if c.Kind == claim.Route {
		return []mesh.Port{{Number: service.RoutesOnlyPort, Protocol: mesh.HTTP}}
	}
	spec, ok := f.q.tables.Services.Get(f.r, c.Object())
	if !ok {
		return nil
	}
	return spec.Ports
}

// shared returns the numbers of the ports of a service where the Host header distinguishes requests for it from requests for another host.
func shared(spec *mesh.Service, others []mesh.Port) (numbers []string) {
	byName := func(p mesh.Port) bool { return p.Protocol.IsHTTP() || p.Protocol.Sniffed() }
	for _, p := range spec.Ports {
		if byName(p) && slices.ContainsFunc(others, func(o mesh.Port) bool { return o.Number == p.Number && byName(o) }) {
			numbers = append(numbers, strconv.FormatUint(uint64(p.Number), 10))
		}
	}
	return numbers
}

// merged warns of settings without effect where a namespace declares a host twice.
func (f *findings) merged(at, host string, o claim.Claim, spec, first *mesh.Service) {
	if spec.Resolution != first.Resolution {
		f.conflict("host-declared-twice", at, "%s is older and declares %q with another resolution: that one counts", o.Object(), host)
	}
	for i, p := range spec.Ports {
		if was, ok := first.Port(p.Number); ok && was.Protocol != p.Protocol {
			f.conflict("host-declared-twice", fmt.Sprintf("spec.ports[%d].protocol", i), "%s is older and declares port %d of %q as %q: that counts", o.Object(), p.Number, host, was.Protocol)
		}
	}
}

// addresses warns of addresses of a host that belong to another host.
func (f *findings) addresses(host string) {
	fp, ok := f.q.services.Footprint(f.r, service.HostView{Host: host})
	if !ok {
		f.hiddenAddresses(host)
		return
	}
	for _, at := range fp.Connections {
		if f.addressesLeft--; f.addressesLeft < 0 {
			return
		}
		f.losses(host, at.Address)
	}
	for _, ip := range fp.VIPs {
		if f.addressesLeft--; f.addressesLeft < 0 {
			return
		}
		at := exposure.Domain{Name: ip, Port: fp.HTTPPorts[0]}
		for c := range f.q.services.Index.Domains.Group(f.r, service.All{}, at).All() {
			if c.Host != host && c.Created <= fp.Created {
				f.conflict("address-taken", "spec.addresses", "%s, port %d, belongs to %s: requests there do not reach %q; give it an address of its own", ip, at.Port, winner(c.Host, c.IsService()), host)
			}
			break
		}
	}
}

// hiddenAddresses warns of addresses of a host that belong to Services, if not all namespaces see the host.
func (f *findings) hiddenAddresses(host string) {
	own, ok := f.q.tables.Claims.Get(f.r, f.key)
	if !ok {
		return
	}
	view := service.HostView{Host: host, Viewer: own.Layers[0]}
	fp, _ := f.q.services.Footprint(f.r, view)
	for _, at := range fp.Connections {
		if f.addressesLeft--; f.addressesLeft < 0 {
			return
		}
		for _, l := range f.q.transport.ServiceConflicts(f.r, view, at.Address) {
			f.conflict("address-taken", "spec.addresses", "%s, port %d, belongs to %s: connections there do not reach %q; give it addresses of its own", l.Block, at.Port, winner(l.Winner, true), host)
		}
	}
}

// winner names a service that goes before another one.
func winner(host string, isService bool) string {
	if isService {
		return fmt.Sprintf("the Service %q of a Kubernetes cluster", host)
	}
	return fmt.Sprintf("the older service %q", host)
}

// losses warns of connections to an address of a host that go to another host.
func (f *findings) losses(host string, at exposure.Address) {
	ip := at.IP
	if ip == "" {
		ip = "any address"
	}
	for _, l := range f.q.transport.Conflicts(f.r, host, at) {
		switch {
		case l.Name != "":
			f.conflict("address-taken", "spec.hosts", "%s, port %d: %s has the TLS name %q: connections that ask for it do not reach %q", ip, at.Port, winner(l.Winner, l.Service), l.Name, host)
		case l.Block != "":
			f.conflict("address-taken", "spec.addresses", "%s, port %d, belongs to %s: connections there do not reach %q; give it addresses of its own", l.Block, at.Port, winner(l.Winner, l.Service), host)
		default:
			f.conflict("address-taken", "spec.addresses", "%s, port %d, belongs to %s: connections there do not reach %q; give it an address of its own", ip, at.Port, winner(l.Winner, l.Service), host)
		}
	}
}

func (f *findings) sidecar() {
	row, ok := f.q.tables.Sidecars.Get(f.r, f.key)
	if !ok {
		return
	}
	if len(row.Selector) == 0 {
		for o := range f.q.tables.SidecarsFor.Group(f.r, f.key.Namespace).All() {
			if o.Key != f.key {
				f.conflict("sidecar-overruled", "spec.workloadSelector", "%s is older and has no selector either: this one is not used", o.Key)
			}
			break
		}
	}
	if len(row.Selector) > 0 {
		f.selectingSidecar(row)
	}
	if via := row.Outbound; via.Host != "" {
		f.destination(target{at: "spec.outboundTrafficPolicy.egressProxy", to: &networking.Destination{
			Host: via.Host, Subset: via.Subset, Port: &networking.PortSelector{Number: via.Port},
		}})
	}
	groups := 0
	for i, in := range row.Imports {
		if in.Namespace != "*" || mesh.IsWildcard(in.Host) {
			if groups++; groups == scope.MaxGroups {
				f.warn("limit-exceeded", "spec.egress", "only the first %d imports that name a namespace or a pattern are used; import single hosts, or more with fewer patterns", scope.MaxGroups-1)
			}
		}
		if i >= maxChecked {
			continue
		}
		if in.Namespace == "*" && !mesh.IsWildcard(in.Host) && f.q.tables.ByHost.Group(f.r, in.Host).Len() == 0 {
			f.warn("sidecar-no-host", "spec.egress", "there is no service or route for host %q%s", in.Host, f.hostHint(in.Host))
		}
		if in.Namespace != "*" && in.Namespace != "." && !f.declares(in.Namespace) {
			f.warn("sidecar-no-namespace", "spec.egress", "namespace %q declares no service and no routes that namespace %q sees: nothing is imported from there; correct the name, or remove the import", in.Namespace, f.key.Namespace)
		}
	}
}

// selectingSidecar warns of a selector for whose workloads another Sidecar goes first, or that selects no workload.
func (f *findings) selectingSidecar(row *state.Sidecar) {
	if first, ok := f.q.scope.SelectingSidecar(f.r, f.key.Namespace, mesh.LabelsOf(row.Selector)); ok && first != f.key {
		f.conflict("sidecar-overruled", "spec.workloadSelector", "%s is older and selects all workloads that this one selects: this one is not used; merge them", first)
		return
	}
	f.selectorWithoutWorkload("spec.workloadSelector", row.Selector, func(id string) bool {
		of, ok := f.q.scope.SidecarOf(f.r, id)
		return ok && of == f.key
	})
}

// declares reports whether a namespace declares any host that the namespace of the object sees.
func (f *findings) declares(namespace string) bool {
	for _, layer := range []string{"", f.key.Namespace} {
		if f.q.tables.Hosts.DeclaredIn.Group(f.r, claim.NamespaceLayer{Namespace: namespace, Layer: layer}).Len() > 0 {
			return true
		}
	}
	return false
}

// workloadGroup finds nothing: the problems of proxies that use the group are found where they are registered.
func (f *findings) workloadGroup() {}

// workloadEntry warns of a workload that is not an endpoint of any service.
func (f *findings) workloadEntry() {
	e, ok := f.q.tables.Workloads.Get(f.r, f.key)
	if ok && !f.q.services.IsSelected(f.r, f.key, e.Labels) {
		f.warn("workload-not-selected", "spec.labels", "no ServiceEntry of namespace %q selects this workload: nothing is sent to it; give it the labels of a workloadSelector", f.key.Namespace)
	}
}
