package scope

import (
	"fmt"
	"unique"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// Audience names proxies that share results. From the widest to the narrowest, an audience is
//
//   - all proxies without a Sidecar, who see the base view. They differ by the IP versions of their addresses;
//   - the ones in a cluster in which services have other addresses;
//   - the proxies of a Set;
//   - the ones among them with labels that some rule matches or selects by.
//
// The results of an audience lie over the results of the next wider one; see Wider. The zero Audience is all proxies with addresses of IPv4. An audience takes
// one word in a key.
type Audience struct{ of unique.Handle[facets] }

// facets are what proxies of an audience have in common.
type facets struct {
	set Set
	// labels are the relevant labels; see proxy.Class.
	labels mesh.Labels
	// rules are the DestinationRules that select the proxies.
	rules traffic.SelectingRules
}

func audienceOf(f facets) Audience {
	if f == (facets{}) {
		return Audience{}
	}
	return Audience{unique.Make(f)}
}

// Everyone returns the proxies without a Sidecar whose addresses have some IP versions.
func Everyone(f mesh.Families) Audience { return audienceOf(facets{set: Set{Families: f}}) }

// InCluster returns the proxies without a Sidecar in a cluster, whose addresses have some IP versions. Without a cluster it is Everyone.
func InCluster(f mesh.Families, cluster string) Audience {
	return audienceOf(facets{set: Set{Families: f, Cluster: cluster}})
}

// InSet returns the proxies of a set.
func InSet(s Set) Audience { return audienceOf(facets{set: s}) }

// AudienceOf returns the narrowest audience of the proxies of a class.
func AudienceOf(c proxy.Class) Audience { return audienceOf(facets{SetOf(c), c.Labels, RulesOf(c)}) }

func (a Audience) facets() facets {
	if a == (Audience{}) {
		return facets{}
	}
	return a.of.Value()
}

// Set returns the set of the proxies. Its namespace is empty for all proxies, and for all of a cluster.
func (a Audience) Set() Set { return a.facets().set }

// Labels returns the relevant labels of the proxies.
func (a Audience) Labels() mesh.Labels { return a.facets().labels }

// Rules returns the DestinationRules that select the proxies.
func (a Audience) Rules() traffic.SelectingRules { return a.facets().rules }

// Labelled reports whether the audience has labels or rules of its own.
func (a Audience) Labelled() bool {
	f := a.facets()
	return !f.labels.Empty() || !f.rules.Names.Empty()
}

// OfBaseView reports whether the audience sees the base view: it is all proxies, or all of a cluster.
func (a Audience) OfBaseView() bool { return a.Set().Namespace == "" }

// IsEveryone reports whether the audience is all proxies without a Sidecar.
func (a Audience) IsEveryone() bool {
	set := a.Set()
	return set.Namespace == "" && set.Cluster == "" && !a.Labelled()
}

// Unlabelled returns the audience without labels and rules.
func (a Audience) Unlabelled() Audience { return InSet(a.Set()) }

// Wider returns the next wider audience. ok is false for all proxies, and for the proxies of a Sidecar: the results for them lie over no others.
func (a Audience) Wider() (wider Audience, ok bool) {
	f := a.facets()
	switch {
	case a.Labelled():
		return InSet(f.set), true
	case !f.set.Overlay():
		return Audience{}, false
	case f.set.Namespace != "":
		return InCluster(f.set.Families, f.set.Cluster), true
	case f.set.Cluster != "":
		return Everyone(f.set.Families), true
	}
	return Audience{}, false
}

// String shows the audience, for people.
func (a Audience) String() string { return fmt.Sprint(a.facets()) }

// Groups is an index of things that an audience may see differently than the next wider one; for an audience that is over no other, of all things that it sees.
type Groups[G omap.Key[G], M omap.Key[M]] struct {
	all      query.Groups[service.All, G, M]
	ofSet    query.Groups[Set, G, M]
	labelled query.Groups[Audience, G, M]
}

// Group returns the members of a group for an audience.
func (i Groups[G, M]) Group(r *query.Reader, a Audience, g G) omap.Map[M, omap.Unit] {
	switch {
	case a.Labelled():
		return i.labelled.Group(r, a, g)
	case a.OfBaseView():
		return i.all.Group(r, service.All{}, g)
	}
	return i.ofSet.Group(r, a.Set(), g)
}

// Keys returns the groups that have members for an audience.
func (i Groups[G, M]) Keys(r *query.Reader, a Audience) omap.Map[G, omap.Unit] {
	switch {
	case a.Labelled():
		return i.labelled.Keys(r, a)
	case a.OfBaseView():
		return i.all.Keys(r, service.All{})
	}
	return i.ofSet.Keys(r, a.Set())
}

// AudienceIndex groups the footprints that audiences see; see exposure.Index.
type AudienceIndex struct {
	HTTPPorts            Groups[exposure.PortNumber, omap.Name]
	DedicatedPorts       Groups[exposure.HostPort, omap.Name]
	Redirected, Loopback Groups[exposure.Address, exposure.Candidate]
}

func audienceIndex(all *exposure.Index[service.All], ofSet *exposure.Index[Set], labelled *exposure.Index[Audience]) AudienceIndex {
	return AudienceIndex{
		HTTPPorts:      Groups[exposure.PortNumber, omap.Name]{all.HTTPPorts, ofSet.HTTPPorts, labelled.HTTPPorts},
		DedicatedPorts: Groups[exposure.HostPort, omap.Name]{all.DedicatedPorts, ofSet.DedicatedPorts, labelled.DedicatedPorts},
		Redirected:     Groups[exposure.Address, exposure.Candidate]{all.Redirected, ofSet.Redirected, labelled.Redirected},
		Loopback:       Groups[exposure.Address, exposure.Candidate]{all.Loopback, ofSet.Loopback, labelled.Loopback},
	}
}

// Candidates returns the candidates for addresses, with or without traffic redirection.
func (i AudienceIndex) Candidates(notIntercepted bool) Groups[exposure.Address, exposure.Candidate] {
	if notIntercepted {
		return i.Loopback
	}
	return i.Redirected
}
