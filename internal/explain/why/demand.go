package why

import (
	"fmt"
	"strings"

	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// maxAuthorities bounds how many names are listed by which a workload has asked for a host.
const maxAuthorities = 10

// notAsked says why a sidecar with hosts on demand does not have something.
func notAsked(a *class.Asked) string {
	if a.Full != "" {
		return "not asked for, and the sidecar is refused further hosts: " + a.Full
	}
	return fmt.Sprintf("not asked for yet: the sidecar gets hosts on demand, and has this one with the first request of its workload; it has asked for %s", plural(a.Names, "name"))
}

// askedAs says by which names a sidecar has asked for a host. refused is why the proxy has rejected one of the answers.
func (i *inquiry) askedAs(list []string, refused string) string {
	more := ""
	if n := len(list) - maxAuthorities; n > 0 {
		list, more = list[:maxAuthorities], fmt.Sprintf(" and %d others", n)
	}
	if refused != "" {
		i.answer.Verdict, more = reply.HeldBack, more+"; the proxy has rejected the answer: "+refused
	}
	return "the sidecar gets hosts on demand, and its workload has asked for this one as " + strings.Join(list, ", ") + more
}

// hostOnDemand adds to the ports of a host whether a sidecar with hosts on demand has asked for them. The verdict is NotAsked if it has none of them.
func (i *inquiry) hostOnDemand(s hostSeen) {
	a, _ := i.Queries.AskedBy(i.r, i.Connection)
	without := 0
	for n := range i.answer.Ports {
		p := &i.answer.Ports[n]
		if a == nil || !resource.OnDemandRoute(p.Route) {
			continue
		}
		list, refused := a.Authorities(p.Route, route.PieceName(s.host, p.Number))
		text := notAsked(a)
		if len(list) > 0 {
			text = i.askedAs(list, refused)
		} else {
			without++
		}
		p.Reasons = append(p.Reasons, reply.Reason{Text: text})
	}
	if without > 0 && without == len(i.answer.Ports) {
		i.answer.Verdict = reply.NotAsked
	}
}

// foundOnDemand adds to a resource of the class whether a sidecar with hosts on demand has it.
func (i *inquiry) foundOnDemand(r *resource.Resource, piece string) {
	a, ok := i.Queries.AskedBy(i.r, i.Connection)
	if !ok {
		return
	}
	has, text := true, ""
	switch t := r.Type(); {
	case t == resource.Cluster || t == resource.Endpoint:
		has = a.HasCluster(r.Name())
	case t != resource.Route || !resource.OnDemandRoute(r.Name()):
	case piece == "":
		text = fmt.Sprintf("the sidecar gets hosts on demand: of these it has %s that its workload has asked for", plural(len(a.Hosts(r.Name())), "name"))
	default:
		list, refused := a.Authorities(r.Name(), piece)
		has, text = len(list) > 0, i.askedAs(list, refused)
	}
	if !has {
		i.answer.Verdict, text = reply.NotAsked, notAsked(a)
	}
	if text != "" {
		i.answer.Reasons = append(i.answer.Reasons, reply.Reason{Text: text})
	}
}
