package protocol

import (
	"maps"

	"github.com/pilotmesh/pilot/internal/ads/protocol/claim"
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// compareSplit compares the versions of route configurations in the split form, and of virtual hosts, with a state.
func (c *Core) compareSplit(t resource.Type, cur *cursor, q *Request, s *resource.State) resumption {
	found := resumption{sub: c.withInitial(t, cur.sub, q)}
	hosts := claim.All(c.split.versions)
	onDemand := func(route string) bool { return c.demandsHosts() && resource.OnDemandRoute(route) }
	maps.DeleteFunc(hosts, func(route string, _ []claim.Claim) bool { return onDemand(route) })
	var over []omap.Change[omap.Name, *resource.Resource]
	var listed, strays, unwanted []string
	for n, version := range q.Initial() {
		name := string(n)
		listed = append(listed, name)
		has := hosts[name]
		delete(hosts, name)
		target, ok := s.Get(t, name)
		if !ok {
			over = append(over, omap.Put(omap.Name(name), resource.UnknownContent(name)))
			for _, h := range has {
				strays = append(strays, h.Name)
			}
			continue
		}
		if onDemand(name) {
			if string(version) != target.DemandHead().Version() {
				over = append(over, omap.Put(omap.Name(name), target.WithoutHeader()))
			}
		} else if had := claim.Had(target, version, has); had != target {
			over = append(over, omap.Put(omap.Name(name), had))
		}
	}
	for _, of := range hosts {
		for _, h := range of {
			unwanted = append(unwanted, h.Name)
		}
	}
	found.strays, found.unwanted = nameset.Of(strays), nameset.Of(unwanted)
	set := nameset.Of(listed)
	if len(over) == 0 && set.Len() == found.sub.Names.Len() {
		found.equal, found.forced = true, absent(cur.open.names, t, s)
		return found
	}
	m := move{typ: t, to: s, sub: found.sub}
	for r := range m.visible() {
		if n := omap.Name(r.Name()); !set.Has(n) {
			over = append(over, omap.Put(n, resource.Hide(r.Name())))
		}
	}
	found.had = &resource.State{}
	found.had.Types[t] = s.Types[t].On(omap.With(resources{}, over...))
	found.forced = nameset.Subtract(cur.open.names, set)
	return found
}
