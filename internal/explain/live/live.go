// Package live answers whether a change is in force: how many of the proxies that need an object have acknowledged its present
// version, and use it.
//
// A proxy needs an object if something that the proxy has was made with it. The graph knows that, because it records what each
// result was made of. A proxy has acknowledged the object if it has acknowledged the last state of its class that the last change of
// the object, or a later one, has led to, and rejects nothing that is made of it. It uses an acknowledged resource unless its agent
// reports that a resource that is made of the object is warming; an agent that reports nothing is believed. So a proxy that does not
// need the object, or that is behind with something else only, does not delay the answer. Agents do not count: their proxies do.
//
// A sidecar with hosts on demand needs an object that is about hosts if its workload has asked for one of them: see Status.NotAsked.
//
// A connection keeps the listener version that accepted it, with its access policies, until Envoy has drained it. A proxy whose agent reports
// such connections is live, and Draining names it.
//
// The package keeps nothing and starts no goroutines.
package live

import (
	"cmp"
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Status is how far the present version of an object has come.
type Status struct {
	// Revision is the commit that last changed the object, and Generation the version of the object in its cluster; 0 for a file.
	Revision   store.Revision `json:"revision"`
	Generation int64          `json:"generation,omitempty"`
	// Proxies is the number of connected proxies that need the object, and Live how many of them have acknowledged it and use it.
	Proxies int `json:"proxies"`
	Live    int `json:"live"`
	// NotAsked is the number of connected sidecars with hosts on demand whose workloads have not asked for a host that the object is about. They get
	// it with the first request for the host, and do not need it before.
	NotAsked int `json:"not_asked,omitempty"`
	// Behind are the others, by name.
	Behind []Behind `json:"behind,omitempty"`
	// Draining are live proxies, by name, that use the object for new connections, while connections that were opened earlier keep the
	// former listeners.
	Draining []Draining `json:"draining,omitempty"`
}

// Draining is a proxy with connections that were opened before its listeners were changed.
type Draining struct {
	Proxy      string `json:"proxy"` // name.namespace
	Connection string `json:"connection"`
	// FilterChains are how many filter chains drain, and Connections how many connections they have at most.
	FilterChains uint32 `json:"filter_chains"`
	Connections  uint32 `json:"connections"`
}

// Behind is a proxy that needs an object, and has not acknowledged its present version or does not use it yet.
type Behind struct {
	Proxy      string `json:"proxy"` // name.namespace
	Connection string `json:"connection"`
	// Acknowledged is the revision up to which the proxy has acknowledged everything; 0 if it has acknowledged nothing yet.
	Acknowledged store.Revision `json:"acknowledged,omitempty"`
	// Rejected is the proxy's reason for rejecting something that is made of the object.
	Rejected string `json:"rejected,omitempty"`
	// Warming are resources, such as "LDS 10.0.0.1_80", that the proxy has received and does not use yet. They are made of the object, or
	// may be: of a type with too many of them only the type is named.
	Warming []string `json:"warming,omitempty"`
}

// Done reports whether every proxy that needs the object has acknowledged it and uses it.
func (s Status) Done() bool { return s.Live == s.Proxies }

// Drained reports whether no proxy has connections either that were opened before its listeners were changed.
func (s Status) Drained() bool { return s.Done() && len(s.Draining) == 0 }

// Of returns how far proxies have acknowledged an object on some streams; false if the control plane has no such object. It
// must run between two commits.
func Of(v *loop.View, streams []server.Status, k api.Key) (Status, bool) {
	split, whole, ok := v.Tables.RowsOf(k)
	if !ok {
		return Status{}, false
	}
	at, _ := v.Tables.Positions.Peek(k)
	s := Status{Revision: v.Graph.Changed(whole), Generation: at.Generation}
	users := v.Queries.UsersOf(v.Graph, split)
	for i := range streams {
		one := &streams[i]
		c, ok := v.Class(one.Attachment)
		if !ok || !users.Class(c) || proxy.IsAgent(one.Node) {
			continue
		}
		refused, demands := "", c.HostsOnDemand && aboutHosts(k.Kind)
		if demands {
			var has bool
			if has, refused = users.Demands(one.Attachment, c, v.State(c)); !has {
				s.NotAsked++
				continue
			}
		}
		s.Proxies++
		due := s.Revision
		if now := v.State(c); now != nil {
			due = min(due, now.Revision) // nothing that the class has was changed by the last change of the object
		}
		acknowledged, settled := one.Types.Settled()
		rejected, warms := rejection(v, one, k), warming(v, one, func(t resource.Type, name string) bool { return users.Resource(one.Attachment, c, t, name) })
		rejected, settled = cmp.Or(rejected, refused), settled && (!demands || answered(one))
		if settled && acknowledged >= due && rejected == "" && len(warms) == 0 {
			s.Live++
			if row, _ := v.Tables.Warming.Peek(one.Attachment); row.DrainingChains > 0 {
				s.Draining = append(s.Draining, Draining{proxy.NameOf(one.Node), one.Attachment, row.DrainingChains, row.DrainingConnections})
			}
			continue
		}
		s.Behind = append(s.Behind, Behind{
			Proxy: proxy.NameOf(one.Node), Connection: one.Attachment, Acknowledged: acknowledged, Rejected: rejected, Warming: warms,
		})
	}
	slices.SortFunc(s.Behind, func(a, b Behind) int {
		return cmp.Or(cmp.Compare(a.Proxy, b.Proxy), cmp.Compare(a.Connection, b.Connection))
	})
	slices.SortFunc(s.Draining, func(a, b Draining) int {
		return cmp.Or(cmp.Compare(a.Proxy, b.Proxy), cmp.Compare(a.Connection, b.Connection))
	})
	return s, true
}

// aboutHosts reports whether the objects of a kind are about hosts, which sidecars with hosts on demand may be without.
func aboutHosts(kind string) bool {
	switch kind {
	case api.KindServiceEntry, api.KindVirtualService, api.KindDestinationRule, api.KindWorkloadEntry, kube.KindService, kube.KindEndpointSlice:
		return true
	}
	return false
}

// answered reports whether a sidecar has acknowledged the virtual hosts that it has asked for.
func answered(one *server.Status) bool {
	return !slices.ContainsFunc(one.Wants, func(w protocol.WantStatus) bool {
		return w.Type == resource.VirtualHost && (w.Owed || w.Unanswered)
	})
}

// rejection returns a proxy's reason for rejecting something that is made of an object; empty if it rejects nothing of it now.
func rejection(v *loop.View, one *server.Status, k api.Key) string {
	if !one.Types.HoldsBack() {
		return ""
	}
	for _, r := range v.Queries.ActiveRejections(v.Graph.Glance(), one.Attachment) {
		if slices.Contains(r.Objects, k) {
			return r.Cause()
		}
	}
	return ""
}

// warming returns the resources that a proxy does not use yet and that are, or may be, made of an object. made reports whether a resource is.
func warming(v *loop.View, one *server.Status, made func(resource.Type, string) bool) (list []string) {
	row, _ := v.Tables.Warming.Peek(one.Attachment)
	for _, r := range row.Resources {
		t := resource.Type(r.Type)
		// A cluster that warms does not use its assignment either.
		if made(t, r.Name) || t == resource.Cluster && made(resource.Endpoint, r.Name) {
			list = append(list, t.String()+" "+r.Name)
		}
	}
	for _, t := range row.More {
		list = append(list, resource.Type(t).String())
	}
	return list
}
