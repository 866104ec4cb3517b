package why

import (
	"fmt"
	"math"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// maxDestinations bounds how many destinations of a port are described, and maxUnconnected how many addresses of one are named.
const (
	maxDestinations = 20
	maxUnconnected  = 5
)

// destinations adds where requests to a port go, as the proxy is to have it.
func (i *inquiry) destinations(s hostSeen, p mesh.Port, out *reply.Port) {
	if s.service == nil || p.Protocol == mesh.UDP {
		return
	}
	if out.Route == "" {
		if name := envoy.OutboundCluster(p.Number, "", s.host); len(out.Clusters) > 0 && out.Listener != "" && !i.hasConnectionRules(s) {
			out.Destinations = append(out.Destinations, i.destination("connections", name, 100))
		}
	} else if rc, ok := i.State.Get(resource.Route, out.Route); ok {
		piece, _ := rc.Pieces().Get(omap.Name(route.PieceName(s.host, p.Number)))
		if m, err := piece.Proto(); err == nil {
			if vh, ok := m.(*routev3.VirtualHost); ok {
				i.routed(vh, out)
			}
		}
	}
	account := accountOf(i.proxy)
	if account == "" || len(out.Destinations) == 0 {
		return
	}
	d := described.Request{From: i.class.Namespace + "/" + account, To: fmt.Sprintf("%s:%d", s.host, p.Number), TCP: !p.Protocol.IsHTTP()}
	if asked, err := i.askAccess(d, func(*query.Reader, described.Parsed) proxy.Class { return i.class }); err == nil {
		out.Judge = asked.verdicts
	}
}

// routed adds the destinations of a virtual host.
func (i *inquiry) routed(vh *routev3.VirtualHost, out *reply.Port) {
	add := func(d reply.Destination) {
		if len(out.Destinations) < maxDestinations {
			out.Destinations = append(out.Destinations, d)
		}
	}
	for _, r := range vh.GetRoutes() {
		requests, to := matched(r.GetMatch()), r.GetRoute()
		weighted := to.GetWeightedClusters().GetClusters()
		total := 0.0
		for _, w := range weighted {
			total += float64(w.GetWeight().GetValue())
		}
		switch {
		case r.GetRedirect() != nil:
			add(reply.Destination{Requests: requests, Percent: 100, Response: "a redirect"})
		case r.GetDirectResponse() != nil:
			add(reply.Destination{Requests: requests, Percent: 100, Response: fmt.Sprintf("status %d", r.GetDirectResponse().GetStatus())})
		case len(weighted) == 0:
			add(i.destination(requests, to.GetCluster(), 100))
		}
		for _, w := range weighted {
			add(i.destination(requests, w.GetName(), math.Round(1000*float64(w.GetWeight().GetValue())/total)/10))
		}
	}
}

// matched describes which requests a match selects.
func matched(m *routev3.RouteMatch) string {
	var path string
	switch m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		path = "path " + m.GetPath()
	case *routev3.RouteMatch_PathSeparatedPrefix:
		path = "path prefix " + m.GetPathSeparatedPrefix()
	case *routev3.RouteMatch_SafeRegex:
		path = "path regex " + m.GetSafeRegex().GetRegex()
	default:
		path = "path prefix " + m.GetPrefix()
		if m.GetPrefix() == "/" || m.GetPrefix() == "" {
			path = "any path"
		}
	}
	var more []string
	for _, h := range m.GetHeaders() {
		more = append(more, "header "+h.GetName())
	}
	for _, q := range m.GetQueryParameters() {
		more = append(more, "parameter "+q.GetName())
	}
	if len(more) > 0 {
		path += " with conditions on " + strings.Join(more, ", ")
	}
	return path
}

// destination describes a cluster as a destination.
func (i *inquiry) destination(requests, cluster string, percent float64) reply.Destination {
	d := reply.Destination{Requests: requests, Percent: percent, Cluster: cluster, Addresses: map[string]bool{}}
	name, ok := parseCluster(cluster)
	if !ok {
		return d
	}
	if _, has := i.State.Get(resource.Cluster, cluster); !has && !i.class.HostsOnDemand {
		d.Fails = "the proxy has no such cluster: they fail with status 503"
		return d
	}
	s := i.hostFor(name.host)
	if s.service == nil {
		return d
	}
	labels := i.subsetLabels(s, name.subset)
	var list []mesh.PortEndpoint
	secured := 0
	for _, e := range i.Queries.Services.Endpoints(i.r, s.service, name.port) {
		if !e.Has(labels) {
			continue
		}
		list = append(list, e)
		d.Addresses[e.Address] = true
		if e.Health == mesh.Healthy {
			d.Healthy++
		}
		if e.TakesMeshTLS() {
			secured++
		}
	}
	d.Endpoints, d.Transport = len(list), i.transportTo(s, name, secured, len(list))
	if c, ok := i.State.Get(resource.Cluster, cluster); ok && i.class.OtherAuthority && envoy.NamesWorkload(c.Proto()) {
		d.Transport += "; a header names the workload, because the certificates of the proxy come from another authority"
	}
	if s.service.External {
		return d
	}
	connected := i.proxiesAt(i.r, list)
	for _, e := range list {
		if connected[e.Address] != "" {
			continue
		}
		if d.Missing++; len(d.Unconnected) < maxUnconnected {
			d.Unconnected = append(d.Unconnected, e.Address)
		}
	}
	return d
}

// transportTo says how the proxy connects to a cluster, of whose endpoints some take mutual TLS of the mesh.
func (i *inquiry) transportTo(s hostSeen, name clusterName, secured, total int) string {
	if policy, ok := i.Queries.Rules.Policy.Get(i.r, s.view); ok {
		switch tls := i.Queries.Rules.Settings(i.r, policy, policy.Subset(name.subset), name.port).TLS; {
		case tls == nil:
		case tls.GetMode() == networking.ClientTLSSettings_DISABLE:
			return "plain text, by its DestinationRule"
		default:
			return "TLS, by the mode " + tls.GetMode().String() + " of its DestinationRule"
		}
	}
	switch {
	case total == 0:
		return ""
	case secured == 0 || !i.Tables.AutoMTLS(i.r):
		return "plain text"
	case secured < total:
		return fmt.Sprintf("mutual TLS to %d of them, automatic, and plain text to the others", secured)
	}
	return "mutual TLS, automatic"
}
