package relay

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Route configurations in the split form get their virtual hosts as resources of their own, which are named ROUTE/HOST. Envoy asks for virtual
// hosts once per stream and names none, and uses a route configuration when its first response with virtual hosts arrives. So the relay replays a
// split route configuration together with its virtual hosts, all in one response, and never without them. A sidecar with hosts on demand may have none: then the
// relay removes one that does not exist, as the control plane does, and Envoy asks for each that its workload uses.

// hostURL is the type of virtual hosts as resources of their own.
const hostURL = "type.googleapis.com/envoy.config.route.v3.VirtualHost"

// noHost is the name of no virtual host.
const noHost = "__none"

// fieldVhds is RouteConfiguration.vhds.
const fieldVhds = 9

// isSplit reports whether a route configuration is in the split form.
func isSplit(r *discoveryv3.Resource) bool {
	for b := r.GetResource().GetValue(); len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		if field == fieldVhds {
			return true
		}
		size := protowire.ConsumeFieldValue(field, kind, b[n:])
		if size < 0 {
			return false
		}
		b = b[n+size:]
	}
	return false
}

// splitNames are the names of the route configurations in the split form among resources.
func splitNames(typeURL string, list []*discoveryv3.Resource) (names []string) {
	if typeURL != routeURL {
		return nil
	}
	for _, r := range list {
		if isSplit(r) {
			names = append(names, r.GetName())
		}
	}
	return names
}

// routeOf is the route configuration that a virtual host belongs to.
func routeOf(host string) string { return host[:max(0, strings.LastIndexByte(host, '/'))] }

// hostsOf are the kept virtual hosts, by route configuration.
func (s *session) hostsOf() map[string][]*discoveryv3.Resource {
	all := map[string][]*discoveryv3.Resource{}
	for _, r := range s.store.All(hostURL) {
		all[routeOf(r.GetName())] = append(all[routeOf(r.GetName())], r)
	}
	return all
}

// forget removes resources from which Envoy has unsubscribed from the store, and the virtual hosts of route configurations among them.
func (s *session) forget(typeURL string, names []string) {
	s.store.Forget(typeURL, names...)
	if typeURL != routeURL {
		return
	}
	of := s.hostsOf()
	for _, name := range names {
		for _, r := range of[name] {
			s.store.Forget(hostURL, r.GetName())
		}
	}
}

// hosted are the virtual hosts of a split route configuration.
type hosted struct {
	route string
	list  []*discoveryv3.Resource
}

// existing divides resources into the ones with content and the names of the others: a virtual host without content is the answer that there is none.
func existing(typeURL string, list []*discoveryv3.Resource) (present []*discoveryv3.Resource, absent []string) {
	if typeURL != hostURL {
		return list, nil
	}
	for _, r := range list {
		if r.GetResource() == nil {
			absent = append(absent, r.GetName())
		} else {
			present = append(present, r)
		}
	}
	return present, absent
}

// served leaves out the split route configurations whose virtual hosts are not in the store, and returns the virtual hosts of the others.
func (s *session) served(typeURL string, list []*discoveryv3.Resource) (rest []*discoveryv3.Resource, hosts []hosted, lacking []string) {
	if len(splitNames(typeURL, list)) == 0 {
		return list, nil, nil
	}
	of := s.hostsOf()
	demands, _ := s.store.Named(clusterURL, []string{envoy.DemandCluster})
	for _, r := range list {
		name := r.GetName()
		switch onDemand := len(demands) > 0 && strings.Trim(name, "0123456789") == ""; {
		case !isSplit(r):
			rest = append(rest, r)
		case len(of[name]) == 0 && !onDemand:
			lacking = append(lacking, name)
		default:
			rest, hosts = append(rest, r), append(hosts, hosted{name, of[name]})
		}
	}
	return rest, hosts, lacking
}

// giveHosts sends Envoy the virtual hosts of split route configurations that were just replayed.
func (d *delta) giveHosts(s *session, all []hosted) error {
	for _, of := range all {
		d.mu.Lock()
		if d.hosts == nil {
			d.hosts = map[string]string{}
		}
		for _, r := range of.list {
			d.hosts[r.GetName()] = r.GetVersion()
		}
		d.mu.Unlock()
		answer := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: hostURL, Resources: of.list}
		if len(of.list) == 0 {
			answer.RemovedResources = []string{of.route + "/" + noHost}
		}
		if err := d.give(s, answer); err != nil {
			return err
		}
	}
	return nil
}

// hostRequest adds to Envoy's first request for virtual hosts the versions of the replayed ones. It reports whether the request has changed.
func (d *delta) hostRequest(q *discoveryv3.DeltaDiscoveryRequest, first bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !first || len(q.GetInitialResourceVersions()) > 0 || len(d.hosts) == 0 {
		return false
	}
	q.InitialResourceVersions = d.hosts
	return true
}
