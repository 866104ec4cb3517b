package transport

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// In a dual-stack mesh a service has one listener at the first of its addresses, and this listener has the others as additional addresses. An address at
// which something else asks for connections, too, has a listener of its own, because the connections there may be handled in another way. Whether two
// addresses have a listener together follows from the candidates for both, so that the plans of both agree. An overlay has no listener at an address
// for which it has no candidates of its own, so there the base view decides about both addresses: what the overlay has at one of them counts for both, or not.

// maxJoined bounds how many addresses a listener has. A service with more addresses has a listener at each.
const maxJoined = 16

// sole returns the service that asks for the connections at an address, if nothing else does.
func (l candidateList) sole() (exposure.Candidate, bool) {
	if len(l.hosts) != 1 || l.http || l.dynamic || l.grpcWeb || l.holder || l.hosts[0].FromSidecar {
		return exposure.Candidate{}, false
	}
	return l.hosts[0], true
}

// none reports whether nothing asks for the address, here and in the base view.
func (l candidateList) none() bool {
	return len(l.hosts) == 0 && len(l.onlyInBase) == 0 && !l.http && !l.dynamic && !l.grpcWeb && !l.holder
}

// joiner knows the candidates for the addresses at a port, as some clients see them.
type joiner struct {
	q              *Queries
	r              *query.Reader
	at             place
	notIntercepted bool
}

// inBase returns the candidates for an address in the base view.
func (j joiner) inBase(ip string) candidateList {
	return j.q.candidates(j.r, Key{NotIntercepted: j.notIntercepted, At: exposure.Address{IP: ip, Port: j.at.at.Port}})
}

// inSet returns the candidates for an address that the set itself has.
func (j joiner) inSet(ip string) candidateList {
	return j.q.candidates(j.r, Key{scope.InSet(*j.at.set), j.notIntercepted, exposure.Address{IP: ip, Port: j.at.at.Port}})
}

// merged returns all candidates for an address in the set. own are the ones that the set itself has.
func (j joiner) merged(ip string, own candidateList) candidateList {
	if !j.at.set.Overlay() {
		return own
	}
	all := j.inBase(ip)
	all.http, all.dynamic = all.http || own.http, all.dynamic || own.dynamic
	all.grpcWeb, all.holder = all.grpcWeb || own.grpcWeb, all.holder || own.holder
	kept := slices.DeleteFunc(all.hosts, func(c exposure.Candidate) bool { return own.onlyInBase[c.Host] })
	all.hosts = append(kept, own.hosts...)
	return all
}

// together reports whether two addresses of a service have a listener together.
func (j joiner) together(a, b string) bool {
	one, two := candidateList{}, candidateList{}
	if j.at.set == nil {
		one, two = j.inBase(a), j.inBase(b)
	} else {
		one, two = j.inSet(a), j.inSet(b)
		if j.at.set.Overlay() && (one.none() || two.none()) {
			one, two = j.inBase(a), j.inBase(b)
		} else {
			one, two = j.merged(a, one), j.merged(b, two)
		}
	}
	x, ok := one.sole()
	y, also := two.sole()
	return ok && also && x == y
}

// addresses returns the addresses of the service that alone asks for the connections at the place, or does in the base view.
func (j joiner) addresses() []string {
	ip := j.at.at.IP
	if j.at.set != nil {
		if c, ok := j.merged(ip, j.inSet(ip)).sole(); ok {
			return j.of(j.q.scope.View(j.r, scope.HostInSet{Host: c.Host, Set: *j.at.set}))
		}
		if !j.at.set.Overlay() {
			return nil
		}
	}
	if c, ok := j.inBase(ip).sole(); ok {
		return j.of(service.HostView{Host: c.Host})
	}
	return nil
}

// of returns the addresses of a service that may have a listener together.
func (j joiner) of(v service.HostView) []string {
	s, ok := j.q.services.Service.Get(j.r, v)
	if !ok || s.Headless {
		return nil
	}
	list := s.AddressesFor(j.at.families, j.at.cluster)
	if len(list) < 2 || len(list) > maxJoined || !slices.Contains(list, j.at.at.IP) {
		return nil
	}
	return list
}

// join gives a plan for the first address of a service the others. The plan for one of these is not in use any more.
func (q *Queries) join(r *query.Reader, p *Plan, at place, notIntercepted bool) {
	if at.families != mesh.DualStack || at.at.IP == "" || at.at.IsUnix() {
		return
	}
	j := joiner{q, r, at, notIntercepted}
	list := j.addresses()
	switch {
	case len(list) == 0:
	case list[0] == at.at.IP:
		p.Also = slices.DeleteFunc(slices.Clone(list[1:]), func(ip string) bool { return !j.together(at.at.IP, ip) })
	case j.together(list[0], at.at.IP):
		*p = Plan{}
	}
}
