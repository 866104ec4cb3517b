package traffic

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
)

// Preference is how endpoints are preferred by where they and the client run.
type Preference struct {
	// Shares give each locality its share of the traffic, whatever its endpoints weigh.
	Shares []*networking.LocalityLoadBalancerSetting_Distribute
	// labels are compared in order, each written "key" (the client's value) or "key=value".
	labels []string
	// next is the region that takes over from a region.
	next map[string]string
	// near prefers what is near within what labels prefer; regions only looks no closer than at regions.
	near, regions bool
}

// Preference is how endpoints of a service are preferred under the settings; nil if they are the same for all clients.
// What rules say of it goes before what the service says, and that before what the mesh does.
func (q *Queries) Preference(r *query.Reader, near mesh.Nearness, s Settings) *Preference {
	locality, zone := s.LoadBalancer.GetLocalityLbSetting(), s.LoadBalancer.GetZoneAwareLbSetting()
	if locality == nil && zone == nil && near != mesh.Anywhere {
		return &Preference{labels: mesh.NearLabels(near)}
	}
	if locality == nil && zone == nil {
		locality, zone = q.tables.LocalityBalancing(r), q.tables.ZoneBalancing(r)
		if off(zone.GetEnabled()) {
			zone = nil
		}
	}
	switch {
	case zone != nil && !off(zone.Enabled):
		p := &Preference{labels: zone.FailoverPriority, near: true, regions: true, next: map[string]string{}}
		for _, f := range zone.Failover {
			p.next[f.GetFrom()] = cmp.Or(p.next[f.GetFrom()], f.GetTo())
		}
		return p
	case zone != nil, off(locality.GetEnabled()):
		return nil
	case len(locality.GetDistribute()) > 0:
		return &Preference{Shares: locality.Distribute}
	case s.OutlierDetection == nil: // nobody would find out when to use others
		return nil
	}
	p := &Preference{labels: locality.GetFailoverPriority(), next: map[string]string{}}
	for _, f := range locality.GetFailover() {
		p.next[f.GetFrom()] = cmp.Or(p.next[f.GetFrom()], f.GetTo())
	}
	p.near = len(p.labels) == 0 || len(p.next) > 0
	return p
}

// Preferring reports whether endpoints of a service may be preferred by where clients run, for those too of whom that is not
// known.
func (q *Queries) Preferring(r *query.Reader, near mesh.Nearness, p *Policy) bool {
	return near != mesh.Anywhere || p != nil || q.tables.MeshByLocality(r)
}

func off(enabled *wrapperspb.BoolValue) bool { return enabled != nil && !enabled.Value }

// Arrange puts endpoints in groups by locality, as a client somewhere is to use them. A nil preference has none.
func (p *Preference) Arrange(list []mesh.PortEndpoint, at mesh.Site) []mesh.Group {
	groups := mesh.ByLocality(list)
	switch {
	case p == nil:
		return groups
	case len(p.Shares) > 0:
		return p.share(groups, at.Locality)
	}
	return p.rank(groups, at)
}

// share gives localities their shares by the first line for where the client is. Localities without a share get nothing.
func (p *Preference) share(groups []mesh.Group, at mesh.Locality) []mesh.Group {
	line := slices.IndexFunc(p.Shares, func(d *networking.LocalityLoadBalancerSetting_Distribute) bool { return at.Fits(d.GetFrom()) })
	if line < 0 {
		return groups
	}
	var out []mesh.Group
	to := p.Shares[line].GetTo()
	for _, pattern := range sortedKeys(to) {
		var members []mesh.Group
		sum := uint64(0)
		for _, g := range groups {
			if g.Locality.Fits(pattern) {
				members = append(members, g)
				sum += weight(g)
			}
		}
		for _, g := range members { // several localities of one pattern share its share by what they weigh
			g.Weight = uint32((weight(g)*uint64(to[pattern]) + sum - 1) / sum)
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b mesh.Group) int { return a.Locality.Compare(b.Locality) })
	return out
}

func weight(g mesh.Group) uint64 {
	sum := uint64(0)
	for _, e := range g.Endpoints {
		sum += uint64(max(e.Weight, 1))
	}
	return sum
}

// ranks is how many ranks nearness has.
const ranks = 5

// rank gives groups priorities, without gaps: by labels first, then by nearness.
func (p *Preference) rank(groups []mesh.Group, at mesh.Site) []mesh.Group {
	var out []mesh.Group
	for _, g := range groups {
		rank := uint32(0)
		if p.near {
			rank = p.nearness(g.Locality, at.Locality)
		}
		tiers := map[uint32][]mesh.PortEndpoint{}
		for _, e := range g.Endpoints {
			tier := p.tier(e, at)
			tiers[tier] = append(tiers[tier], e)
		}
		for _, tier := range sortedKeys(tiers) {
			out = append(out, mesh.Group{Locality: g.Locality, Priority: tier*ranks + rank, Endpoints: tiers[tier]})
		}
	}
	var used []uint32
	for _, g := range out {
		used = append(used, g.Priority)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for i := range out {
		at, _ := slices.BinarySearch(used, out[i].Priority)
		out[i].Priority = uint32(at)
	}
	slices.SortStableFunc(out, func(a, b mesh.Group) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Locality.Compare(b.Locality))
	})
	return out
}

// tier is how many of the labels an endpoint does not match, from the first that it does not.
func (p *Preference) tier(e mesh.PortEndpoint, at mesh.Site) uint32 {
	for i, label := range p.labels {
		key, want, given := strings.Cut(label, "=")
		if !given {
			want = valueOf(at.Labels, key)
		}
		if mesh.PlaceLabel(key, e.Labels, e.Locality, e.Network, "") != want {
			return uint32(len(p.labels) - i)
		}
	}
	return 0
}

func valueOf(labels mesh.Labels, name string) string {
	for l := range labels.All() {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// nearness is 0 for the same place and grows with the distance. The region that takes over goes before the others.
func (p *Preference) nearness(there, here mesh.Locality) uint32 {
	switch {
	case there.Region != here.Region:
		if to, ok := p.next[here.Region]; ok && to != there.Region {
			return 4
		}
		return 3
	case p.regions, there == here:
		return 0
	case there.Zone == here.Zone:
		return 1
	}
	return 2
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
