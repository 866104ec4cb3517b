package registries

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/source"
)

// room is one registry: its services, the held instances, and the services that were passed on. All of it is under the lock of the source.
type room struct {
	entry Entry
	order int
	// generation counts the readers. A reader that was replaced is not listened to.
	generation int
	// trusted is true if the next list replaces all without protection, because the entry has changed.
	trusted bool

	said    Services                       // what the registry says
	held    map[string]map[string]Instance // instances that it said before, by service and address
	was     map[string]*Service            // services with held instances, as they were
	until   *time.Timer                    // the end of the protection; nil if nothing is held
	listed  bool                           // there was a list
	waited  bool                           // readiness does not wait any more
	sync    time.Time                      // when it was last read without an error
	problem string                         // why it cannot be read; empty if it can
	refused bool                           // the problem is a refusal
	unsure  bool                           // the last list may be incomplete
	remarks []Remark                       // of no service

	names     map[string]converted          // by the name in the registry
	byHost    map[string]map[string]bool    // the names that have a host
	sent      map[api.Key]*registry.Service // passed on
	reported  map[string][]api.Problem      // passed on, by name; "" for Problems of no service
	instances int

	objects *objects // of a server of configuration; nil for a registry of services
}

func newRoom(e Entry, order int) *room {
	return &room{
		entry: e, order: order, said: Services{}, held: map[string]map[string]Instance{}, was: map[string]*Service{},
		names: map[string]converted{}, byHost: map[string]map[string]bool{}, sent: map[api.Key]*registry.Service{}, reported: map[string][]api.Problem{},
	}
}

// place identifies an instance by its address and ports: under another ID it is the same to clients.
func place(in Instance) string {
	var b strings.Builder
	b.WriteString(in.Address)
	for _, p := range in.Ports {
		fmt.Fprintf(&b, " %d", p.Number)
	}
	return b.String()
}

// inForce returns a service with the instances that are held; nil if there is none.
func (r *room) inForce(name string) *Service {
	is, held := r.said[name], r.held[name]
	if len(held) == 0 {
		if is == nil || len(is.Instances)+len(is.Unread) == 0 {
			return nil
		}
		return is
	}
	all := *r.was[name]
	all.Instances = nil
	if is != nil {
		all = *is
	}
	all.Instances = slices.Clone(all.Instances)
	for _, at := range slices.Sorted(maps.Keys(held)) {
		all.Instances = append(all.Instances, held[at])
	}
	// In the order in which a registry lists them, so that proxies are sent nothing if all stay.
	slices.SortStableFunc(all.Instances, func(a, b Instance) int { return strings.Compare(a.ID, b.ID) })
	return &all
}

// list takes a complete list. It returns the names of the services that may have changed, and whether instances are held.
func (r *room) list(all Services, sure bool) (names []string, hold bool) {
	missing, gone, total := map[string]map[string]Instance{}, 0, 0
	was := map[string]*Service{}
	for name := range r.names {
		old := r.inForce(name)
		if old == nil {
			continue
		}
		here := map[string]bool{}
		if is := all[name]; is != nil {
			for _, in := range is.Instances {
				here[place(in)] = true
			}
		}
		for _, in := range old.Instances {
			total++
			if at := place(in); !here[at] {
				gone++
				if missing[name] == nil {
					missing[name], was[name] = map[string]Instance{}, old
				}
				missing[name][at] = in
			}
		}
	}
	p := r.entry.Protection
	hold = !r.trusted && *p.Hold > 0 && gone >= max(*p.Minimum, 1) && float64(gone) > *p.Threshold*float64(total)
	changed := map[string]bool{}
	for _, m := range []map[string]*Service{r.said, all, r.was} {
		for name := range m {
			changed[name] = true
		}
	}
	if !hold {
		missing, was = map[string]map[string]Instance{}, map[string]*Service{}
	}
	r.said, r.held, r.was, r.unsure = all, missing, was, !sure
	r.listed, r.trusted = true, false
	r.read()
	return slices.Collect(maps.Keys(changed)), hold
}

// change takes new versions of some services. Held instances that are listed again are not held any more.
func (r *room) change(some Services) (names []string) {
	for name, is := range some {
		names = append(names, name)
		if is == nil {
			delete(r.said, name)
			continue
		}
		r.said[name] = is
		for _, in := range is.Instances {
			delete(r.held[name], place(in))
		}
		if len(r.held[name]) == 0 {
			delete(r.held, name)
			delete(r.was, name)
		}
	}
	r.read()
	return names
}

// read notes that the registry could be read.
func (r *room) read() { r.problem, r.refused, r.sync = "", false, time.Now() }

// release ends the protection. It returns the names of the services that had held instances.
func (r *room) release() []string {
	names := slices.Collect(maps.Keys(r.held))
	r.held, r.was = map[string]map[string]Instance{}, map[string]*Service{}
	return names
}

// unit is the word for one held thing.
func (r *room) unit() string {
	if r.objects != nil {
		return "objects"
	}
	return "instances"
}

// heldInstances is how many instances or objects are held.
func (r *room) heldInstances() (n int) {
	if r.objects != nil {
		return len(r.objects.held)
	}
	for _, list := range r.held {
		n += len(list)
	}
	return n
}

// convert converts services again. It returns the events that follow, and the changes of Problems.
func (r *room) convert(names []string, domain string) (events []source.Event, problems []source.ProblemEvent) {
	c := converter{entry: &r.entry, order: r.order, domain: domain}
	hosts := map[string]bool{}
	for _, name := range names {
		if was, ok := r.names[name]; ok {
			r.instances -= was.size()
			hosts[was.host] = true
			delete(r.byHost[was.host], name)
			delete(r.names, name)
		}
		s := r.inForce(name)
		if s == nil || !r.entry.Active(cmp.Or(s.Listed, name)) {
			continue
		}
		is := c.convert(name, s)
		r.names[name] = is
		r.instances += is.size()
		if hosts[is.host] = true; r.byHost[is.host] == nil {
			r.byHost[is.host] = map[string]bool{}
		}
		r.byHost[is.host][name] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		e, p := r.settle(host)
		events, problems = append(events, e...), append(problems, p...)
	}
	for _, name := range names {
		if _, ok := r.names[name]; !ok {
			problems = append(problems, r.report(name, nil)...)
		}
	}
	slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	return events, problems
}

// size is how many instances the service has.
func (c converted) size() int {
	if c.service == nil {
		return 0
	}
	return len(c.service.Endpoints)
}

// settle decides which of the services with a host has it, and passes on what changes.
func (r *room) settle(host string) (events []source.Event, problems []source.ProblemEvent) {
	names := slices.SortedFunc(maps.Keys(r.byHost[host]), func(a, b string) int {
		x, y := r.names[a], r.names[b]
		return cmp.Or(compareBool(y.exact, x.exact), strings.Compare(a, b))
	})
	if len(names) == 0 {
		delete(r.byHost, host)
	}
	var winner *registry.Service
	for i, name := range names {
		is := r.names[name]
		list := is.problems
		if i == 0 && is.service != nil && len(is.service.Spec.Ports) > 0 {
			winner = is.service
		}
		if i > 0 && !is.refused {
			list = append(slices.Clone(list), api.Problem{
				Object: registry.ServiceKey(r.entry.Name, r.entry.Namespace, host), Severity: api.Warning, Code: "registry-host-conflict", Field: name, Conflict: true,
				Reason: fmt.Sprintf("it is not served: the service %q has the host %s, too, and goes before it; rename one of them, or give one another host with hosts", names[0], host),
			})
		}
		problems = append(problems, r.report(name, list)...)
	}
	key := registry.ServiceKey(r.entry.Name, r.entry.Namespace, host)
	was, had := r.sent[key]
	switch {
	case winner == nil && had:
		delete(r.sent, key)
		events = append(events, source.Event{Key: key})
	case winner != nil && (!had || !was.Same(winner)):
		r.sent[key] = winner
		events = append(events, source.Event{Key: key, Value: winner, Added: !had})
	}
	return events, problems
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// report replaces the Problems of a service, or the Problems of no service, and returns the changes.
func (r *room) report(name string, is []api.Problem) []source.ProblemEvent {
	events := source.ProblemEvents(r.reported[name], is)
	if len(is) == 0 {
		delete(r.reported, name)
	} else {
		r.reported[name] = is
	}
	return events
}

// reportState replaces the Problems of the registry itself.
func (r *room) reportState() []source.ProblemEvent {
	var list []api.Problem
	add := func(p api.Problem) {
		p.Position = api.Position{File: "registry " + r.entry.Name}
		list = append(list, p)
	}
	switch {
	case r.problem == "":
	case r.refused:
		add(api.Problem{Severity: api.Warning, Code: "registry-refused", Reason: r.problem + "; its last services stay"})
	default:
		add(api.Problem{Severity: api.Warning, Code: "registry-unreachable", Reason: r.problem + "; its last services stay"})
	}
	if n := r.heldInstances(); n > 0 {
		add(api.Problem{Severity: api.Warning, Code: "registry-held", Reason: fmt.Sprintf("it does not list %d %s any more after it could not be read; they stay for %v (protection.hold), unless they come back", n, r.unit(), *r.entry.Protection.Hold)})
	}
	if r.unsure && r.problem == "" {
		add(api.Problem{Severity: api.Warning, Code: "registry-refused", Reason: "the registry does not show all services and instances to us: the token in authFile has no rights to read them"})
	}
	if r.objects != nil {
		list = append(list, r.objects.problems()...)
	}
	for _, m := range r.remarks {
		add(api.Problem{Severity: api.Warning, Code: "registry-unread", Field: m.Place, Reason: m.Reason})
	}
	return r.report("", list)
}

// withdraw returns the events that remove all that has been passed on.
func (r *room) withdraw() (events []source.Event, problems []source.ProblemEvent) {
	for _, key := range slices.SortedFunc(maps.Keys(r.sent), api.Key.Compare) {
		events = append(events, source.Event{Key: key})
	}
	for _, name := range slices.Sorted(maps.Keys(r.reported)) {
		problems = append(problems, source.ProblemEvents(r.reported[name], nil)...)
	}
	if r.until != nil {
		r.until.Stop()
	}
	return events, problems
}

// state is the state of the registry for pages.
func (r *room) state() string {
	switch {
	case r.refused:
		return registry.Failed
	case !r.listed:
		return registry.Connecting
	case r.problem != "":
		return registry.Stale
	case r.heldInstances() > 0:
		return registry.Held
	}
	return registry.Synced
}

// settled reports whether readiness need not wait for the registry.
func (r *room) settled() bool { return r.listed || r.waited || !*r.entry.Required }
