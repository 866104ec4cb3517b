package traffic

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Preference says which endpoints a client prefers, by its locality and theirs.
type Preference struct {
	// Shares give each locality its share of the traffic, whatever the weights of its endpoints.
	Shares []*networking.LocalityLoadBalancerSetting_Distribute
	// labels are compared in order. Each is "key", which means the client's value, or "key=value".
	labels []string
	// takeover maps a region to the region that takes over from it.
	takeover map[string]string
	// byDistance prefers near localities among endpoints that labels rank equally. regionsOnly ignores zones and
	// sub-zones.
	byDistance, regionsOnly bool
}

// Preference is how clients prefer the endpoints of a service under the settings. It is nil if all clients use all
// endpoints alike. Rules come before the preference that the service declares, and that comes before the mesh's.
func (q *Queries) Preference(r *query.Reader, near mesh.Nearness, s Settings) *Preference {
	locality, zone := s.LoadBalancer.GetLocalityLbSetting(), s.LoadBalancer.GetZoneAwareLbSetting()
	if near == mesh.OnlyNode { // endpoints on other nodes are left out, so that there is nothing to prefer
		return nil
	}
	if locality == nil && zone == nil && near != mesh.Anywhere {
		return &Preference{labels: mesh.NearLabels(near)}
	}
	if locality == nil && zone == nil {
		locality, zone = q.tables.LocalityBalancing(r), q.tables.ZoneBalancing(r)
		if disabled(zone.GetEnabled()) {
			zone = nil
		}
	}
	switch {
	case zone != nil && !disabled(zone.Enabled):
		p := &Preference{labels: zone.FailoverPriority, byDistance: true, regionsOnly: true, takeover: map[string]string{}}
		for _, f := range zone.Failover {
			p.takeover[f.GetFrom()] = cmp.Or(p.takeover[f.GetFrom()], f.GetTo())
		}
		return p
	case zone != nil, disabled(locality.GetEnabled()):
		return nil
	case len(locality.GetDistribute()) > 0:
		return &Preference{Shares: locality.Distribute}
	case s.OutlierDetection == nil: // without it Envoy would not notice when to fail over
		return nil
	}
	p := &Preference{labels: locality.GetFailoverPriority(), takeover: map[string]string{}}
	for _, f := range locality.GetFailover() {
		p.takeover[f.GetFrom()] = cmp.Or(p.takeover[f.GetFrom()], f.GetTo())
	}
	p.byDistance = len(p.labels) == 0 || len(p.takeover) > 0
	return p
}

// DependsOnLocality reports whether clients may prefer endpoints of a service by locality. It holds for clients of
// unknown locality as well.
func (q *Queries) DependsOnLocality(r *query.Reader, near mesh.Nearness, p *Policy) bool {
	return near != mesh.Anywhere || p != nil || q.tables.MeshByLocality(r)
}

func disabled(enabled *wrapperspb.BoolValue) bool { return enabled != nil && !enabled.Value }

// Arrange puts endpoints into groups by locality, with the priorities or weights that a client at a site uses. The groups
// of a nil preference have no priorities.
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

// share weights localities by the first distribution that is for the client's locality. Localities without a share get no
// traffic.
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
		for _, g := range members { // localities that match one pattern divide its share by the weight of their endpoints
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

// distances is how many values distance has.
const distances = 5

// rank gives groups priorities from 0 without gaps: by labels first, then by distance.
func (p *Preference) rank(groups []mesh.Group, at mesh.Site) []mesh.Group {
	var out []mesh.Group
	for _, g := range groups {
		rank := uint32(0)
		if p.byDistance {
			rank = p.distance(g.Locality, at.Locality)
		}
		tiers := map[uint32][]mesh.PortEndpoint{}
		for _, e := range g.Endpoints {
			tier := p.tier(e, at)
			tiers[tier] = append(tiers[tier], e)
		}
		for _, tier := range sortedKeys(tiers) {
			out = append(out, mesh.Group{Locality: g.Locality, Priority: tier*distances + rank, Endpoints: tiers[tier]})
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

// tier is the number of labels from the first that the endpoint does not match. It is 0 if the endpoint matches all.
func (p *Preference) tier(e mesh.PortEndpoint, at mesh.Site) uint32 {
	for i, label := range p.labels {
		key, want, given := strings.Cut(label, "=")
		if !given {
			want, _ = mesh.LabelValue(at.Labels, key)
		}
		if mesh.PlaceLabel(key, e.Labels, e.Place) != want {
			return uint32(len(p.labels) - i)
		}
	}
	return 0
}

// distance is 0 for the same locality and grows with the distance, up to 4. The region that takes over is nearer than
// other regions.
func (p *Preference) distance(there, here mesh.Locality) uint32 {
	switch {
	case there.Region != here.Region:
		if to, ok := p.takeover[here.Region]; ok && to != there.Region {
			return 4
		}
		return 3
	case p.regionsOnly, there == here:
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
