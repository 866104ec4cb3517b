package state

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// VirtualService is the routes of an object. The hosts of its destinations are fully qualified names, and the gateways of its matches have
// the form NAMESPACE/NAME. Hosts are the hosts for traffic of sidecars.
type VirtualService struct {
	Object api.Key
	Hosts  []string
	Spec   *networking.VirtualService
	Hash   omap.Hash
}

// IsDelegate reports whether the object is a delegate: it has no hosts, and others refer to its routes.
func (v *VirtualService) IsDelegate() bool { return len(v.Spec.Hosts) == 0 }

// Delegates reports whether some of its rules delegate to another object.
func (v *VirtualService) Delegates() bool {
	return slices.ContainsFunc(v.Spec.Http, func(r *networking.HTTPRoute) bool { return r.Delegate != nil })
}

// Destinations yields every destination of the routes.
func (v *VirtualService) Destinations() func(yield func(*networking.Destination) bool) {
	return destinations(v.Spec)
}

// DelegateOf returns the key of the delegate that a rule names. namespace is the namespace of the object with the rule.
func DelegateOf(d *networking.Delegate, namespace string) api.Key {
	if d.Namespace != "" {
		namespace = d.Namespace
	}
	return api.Key{Kind: api.KindVirtualService, Namespace: namespace, Name: d.Name}
}

// RequestLabels returns the source labels that HTTP rules match.
func (v *VirtualService) RequestLabels() []mesh.Label { return v.sourceLabels(forRequests) }

// ConnectionLabels returns the source labels that TLS and TCP rules match.
func (v *VirtualService) ConnectionLabels() []mesh.Label { return v.sourceLabels(forConnections) }

func (v *VirtualService) sourceLabels(each func(*networking.VirtualService, func(callers))) []mesh.Label {
	var labels []mesh.Label
	each(v.Spec, func(m callers) { labels = append(labels, mesh.SortedLabels(m.GetSourceLabels())...) })
	return labels
}

func (t *Tables) splitVirtualService(tx *store.Txn, o *api.Object, spec *networking.VirtualService) {
	c := &claim.Claims{Kind: claim.Route, Created: age(o), Layers: t.layers(spec.ExportTo, o.Namespace, settings.RouteExportTo)}
	if len(spec.Gateways) == 0 || slices.Contains(spec.Gateways, mesh.Gateway) {
		c.Hosts = t.hosts(spec.Hosts, o.Namespace)
	}
	c.Sources, c.Labels = named(spec)
	for _, r := range spec.Http {
		if r.Delegate != nil {
			c.Delegates = append(c.Delegates, DelegateOf(r.Delegate, o.Namespace))
		}
	}
	slices.SortFunc(c.Delegates, api.Key.Compare)
	c.Delegates = slices.Compact(c.Delegates)
	t.Gateways.Bind(tx, o, spec, t.hosts(spec.Hosts, o.Namespace), c)
	if len(c.Layers) == 0 || len(c.Hosts) == 0 && len(spec.Hosts) > 0 {
		t.Claims.Delete(tx, o.Key)
	} else {
		t.Claims.Set(tx, o.Key, c)
	}
	full := proto.Clone(spec).(*networking.VirtualService)
	for d := range destinations(full) {
		d.Host = mesh.FullHost(d.Host, o.Namespace, t.options.Domain)
	}
	forGateways(full, func(list []string) {
		for i := range list {
			list[i] = gateway.NameOf(list[i], o.Namespace)
		}
	})
	t.VirtualServices.Set(tx, o.Key, &VirtualService{Object: o.Key, Hosts: c.Hosts, Spec: full, Hash: o.Hash})
}

// named returns the source namespaces and the source labels that the rules of a VirtualService match.
func named(spec *networking.VirtualService) (namespaces []string, labels []mesh.Label) {
	add := func(m callers) {
		if m.GetSourceNamespace() != "" {
			namespaces = append(namespaces, m.GetSourceNamespace())
		}
		labels = append(labels, mesh.SortedLabels(m.GetSourceLabels())...)
	}
	forRequests(spec, add)
	forConnections(spec, add)
	slices.Sort(namespaces)
	slices.SortFunc(labels, mesh.Label.Compare)
	return slices.Compact(namespaces), slices.Compact(labels)
}

// forGateways calls do for every list of gateways in the rules.
func forGateways(spec *networking.VirtualService, do func([]string)) {
	for _, r := range spec.Http {
		for _, m := range r.Match {
			do(m.Gateways)
		}
	}
	for _, r := range spec.Tls {
		for _, m := range r.Match {
			do(m.Gateways)
		}
	}
	for _, r := range spec.Tcp {
		for _, m := range r.Match {
			do(m.Gateways)
		}
	}
}

// callers is the part of a match that restricts the callers.
type callers interface {
	GetSourceNamespace() string
	GetSourceLabels() map[string]string
}

// forRequests calls do for every match of requests.
func forRequests(spec *networking.VirtualService, do func(callers)) {
	for _, r := range spec.Http {
		for _, m := range r.Match {
			do(m)
		}
	}
}

// forConnections calls do for every match of connections.
func forConnections(spec *networking.VirtualService, do func(callers)) {
	for _, r := range spec.Tls {
		for _, m := range r.Match {
			do(m)
		}
	}
	for _, r := range spec.Tcp {
		for _, m := range r.Match {
			do(m)
		}
	}
}

// destinations yields every destination in the routes of an object.
func destinations(spec *networking.VirtualService) func(yield func(*networking.Destination) bool) {
	return func(yield func(*networking.Destination) bool) {
		give := func(d *networking.Destination) bool { return d == nil || yield(d) }
		for _, r := range spec.Http {
			for _, d := range r.Route {
				if !give(d.Destination) {
					return
				}
			}
			for _, m := range r.Mirrors {
				if !give(m.Destination) {
					return
				}
			}
			if !give(r.Mirror) {
				return
			}
		}
		for _, r := range spec.Tls {
			for _, d := range r.Route {
				if !give(d.Destination) {
					return
				}
			}
		}
		for _, r := range spec.Tcp {
			for _, d := range r.Route {
				if !give(d.Destination) {
					return
				}
			}
		}
	}
}
