package transition

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// AppendHosts appends the virtual hosts of a route configuration that are not among some others.
func AppendHosts(list []string, r *resource.Resource, others omap.Map[omap.Name, *resource.Piece]) []string {
	for name := range r.Pieces().All() {
		if !others.Has(name) {
			list = append(list, resource.HostName(r.Name(), string(name)))
		}
	}
	return list
}

// splitMessages makes the responses about route configurations in the split form: first the heads, then the virtual hosts, all of one
// route configuration in one response. Envoy would use the first part of several, and takes or rejects a response as a whole.
func (m *Move) splitMessages(w *response.Writer, put []*resource.Resource, removed []string) (messages []*response.Message, gone subscribe.Names) {
	var heads []*resource.Resource
	var hosts []*response.Message
	for _, r := range put {
		old, had := m.From.Get(m.Type, r.Name())
		if !had {
			old = nil
		}
		anew := old == nil || m.Forced.Has(omap.Name(r.Name()))
		if r.HasHeader() && (anew || !old.SameHeader(r)) {
			heads = append(heads, m.head(r))
		}
		if h := m.hosts(w, old, r, anew); h != nil {
			hosts = append(hosts, h)
		}
	}
	messages = w.Delta(heads, removed, m.MustRespond)
	for _, part := range messages {
		for i, head := range part.Content {
			part.Content[i], _ = m.To.Get(m.Type, head.Name())
		}
	}
	var list []string
	for _, name := range removed {
		if old, ok := m.From.Get(m.Type, name); ok && !m.demanded(old) {
			list = AppendHosts(list, old, omap.Map[omap.Name, *resource.Piece]{})
		}
	}
	return append(messages, hosts...), nameset.Of(list)
}

// hosts makes the response with the virtual hosts that differ in two versions of a route configuration, or with all if the client has none of them; nil if
// there is nothing to say. old is nil if there is no old version.
func (m *Move) hosts(w *response.Writer, old, r *resource.Resource, all bool) *response.Message {
	of := response.Writer{Variant: m.Variant, Type: resource.VirtualHost, Version: w.Version, ControlPlane: w.ControlPlane}
	message := of.Start()
	if m.demanded(r) {
		if !all {
			return nil
		}
		message.Remove(resource.NoHost(r.Name()))
		message.Content, message.Names = []*resource.Resource{r}, nil
		return message.Seal()
	}
	var before, had omap.Map[omap.Name, *resource.Piece]
	if old != nil {
		had = old.Pieces()
	}
	if !all {
		before = had
	}
	removed := m.strayed(r)
	for ch := range omap.Diff(before, r.Pieces()) {
		if ch.HasNew && ch.New.HasContent() {
			message.Add(ch.New.Host(r.Name()), m.Variant)
		}
	}
	for ch := range omap.Diff(had, r.Pieces()) {
		if !ch.HasNew {
			removed = append(removed, resource.HostName(r.Name(), string(ch.Key)))
		}
	}
	switch {
	case message.Resources+len(removed) > 0:
	case all:
		removed = append(removed, resource.NoHost(r.Name()))
	default:
		return nil
	}
	slices.Sort(removed)
	for _, name := range slices.Compact(removed) {
		message.Remove(name)
	}
	message.Content, message.Names = []*resource.Resource{r}, nil
	return message.Seal()
}

// demanded reports whether the client gets the virtual hosts of a route configuration on demand.
func (m *Move) demanded(r *resource.Resource) bool {
	return m.OnDemand && resource.OnDemandRoute(r.Name())
}

// head is a route configuration without its virtual hosts.
func (m *Move) head(r *resource.Resource) *resource.Resource {
	if m.demanded(r) {
		return r.DemandHead()
	}
	return r.Head()
}

// routesOfStrays lists the route configurations that do not have one of their strays, in name order. The client has the stray, perhaps beside
// everything that it should have, so the difference of two states does not show it.
func (m *Move) routesOfStrays() (put []*resource.Resource) {
	for n := range m.Strays.All() {
		route, piece := resource.SplitHostName(string(n))
		r, ok := m.To.Get(m.Type, route)
		if ok && m.Sub.Has(route) && !r.Pieces().Has(omap.Name(piece)) {
			put = append(put, r)
		}
	}
	slices.SortFunc(put, func(a, b *resource.Resource) int { return strings.Compare(a.Name(), b.Name()) })
	return slices.Compact(put)
}

// strayed lists the strays that a route configuration does not have.
func (m *Move) strayed(r *resource.Resource) (list []string) {
	for n := range m.Strays.All() {
		if route, piece := resource.SplitHostName(string(n)); route == r.Name() && !r.Pieces().Has(omap.Name(piece)) {
			list = append(list, string(n))
		}
	}
	return list
}
