// Package registration decides which WorkloadEntries connected proxies are to have. A proxy that names a WorkloadGroup asks to be
// registered: it gets an entry that is made of the template of the group and of the proxy's own metadata.
//
// For each entry that a proxy of this replica is to have, and for each that some control plane has made, there is one
// cell with everything that the next step depends on. Package controller/entries takes these steps. Their results return as rows.
//
// The package starts no goroutines.
package registration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// Entry is the content of a WorkloadEntry.
type Entry struct {
	Group               api.Key
	Labels, Annotations map[string]string
	Spec                *networking.WorkloadEntry
}

// Facts are the inputs of the next step for a WorkloadEntry.
type Facts struct {
	Key api.Key
	// Connected is since when a proxy of this replica asks for the entry; zero if none does.
	Connected time.Time
	// Proxy names the proxy.
	Proxy string
	// Entry is the desired content of the entry; nil if it cannot be made.
	Entry *Entry
	// Health is the health that the proxy has reported on this connection.
	Health connected.Health
	// Registered is the registration in the cluster's entry; its Group is empty without an entry or if no control plane made it.
	Registered state.Registered
	// Gone is true if the entry names a replica that has no pod in the cluster.
	Gone bool

	hash omap.Hash
}

// OutputName implements query.Output.
func (f Facts) OutputName() string { return f.Key.String() }

// ContentHash implements omap.Value.
func (f Facts) ContentHash() omap.Hash { return f.hash }

// Size implements omap.Value: facts are not sent to proxies.
func (Facts) Size() int { return 0 }

func (f *Facts) seal() {
	b := f.Key.AppendTo(nil)
	for _, s := range []string{f.Proxy, f.Health.Message, f.Registered.Group, f.Registered.Controller} {
		b = append(append(b, s...), 0)
	}
	for _, t := range []time.Time{f.Connected, f.Registered.Connected, f.Registered.Disconnected} {
		b = strconv.AppendInt(append(b, 0), t.UnixNano(), 10)
	}
	b = strconv.AppendBool(append(b, byte(f.Health.State), byte(f.Registered.Health)), f.Gone)
	if e := f.Entry; e != nil {
		b = e.Group.AppendTo(b)
		for _, m := range []map[string]string{e.Labels, e.Annotations} {
			text, _ := json.Marshal(m) // keys are sorted
			b = append(b, text...)
		}
		b, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, e.Spec)
	}
	f.hash = omap.Sum(b)
}

// All is the key of collections that exist once.
type All struct{}

// Map has facts by entry.
type Map = omap.Map[omap.Name, Facts]

// Queries decide about registrations.
type Queries struct {
	// Facts are the facts about all entries that are asked for here or were made by a control plane.
	Facts query.Layers[All, omap.Name, Facts]
	// Problems are the problems of proxies that cannot be registered.
	Problems query.Collection[All, api.Problem]

	tables *state.Tables
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	facts := query.Define(g, "registration", func(a, b []Facts) bool {
		return slices.EqualFunc(a, b, func(a, b Facts) bool { return a.hash == b.hash })
	}, q.facts)
	self := func(_ All, k api.Key) api.Key { return k }
	wanted := func(r *query.Reader, _ All) omap.Map[api.Key, omap.Unit] {
		return t.WantedEntries.Group(r, struct{}{})
	}
	asked := query.Each(g, "askedRegistrations", wanted, facts, self)
	made := query.Each(g, "madeRegistrations", func(r *query.Reader, _ All) omap.Map[api.Key, omap.Unit] {
		return t.Registrations.EntryKeys.Group(r, struct{}{})
	}, facts, self)
	q.Facts = query.DefineLayers(g, "registrations", func(r *query.Reader, all All) []Map { return []Map{asked.Get(r, all), made.Get(r, all)} })
	q.Problems = query.Each(g, "registrationProblems", wanted, query.Define(g, "registrationProblem", slices.Equal[[]api.Problem], q.problem), self)
	return q
}

// facts returns the facts about one entry.
func (q *Queries) facts(r *query.Reader, k api.Key) ([]Facts, bool) {
	f := Facts{Key: k}
	f.Registered, _ = q.tables.Registrations.Entries.Get(r, k)
	if a, ok := q.askerFor(r, k); ok {
		if p, ok := q.tables.Proxies.Get(r, a.Connection); ok {
			f.Connected, f.Proxy = p.Connected, proxy.NameOf(p.ID)
			f.Health, _ = q.tables.Health.Get(r, a.Connection)
			if a.refusal == "" {
				f.Entry = entryFor(p, a.group.Spec)
			}
		}
	}
	if who := f.Registered.Controller; who != "" && q.tables.ControlNamespace() != "" {
		_, exists := q.tables.Kube.Pods.Get(r, api.Key{
			Kind: kube.KindPod, Namespace: q.tables.ControlNamespace(), Name: who, Cluster: q.tables.ClusterID(),
		})
		f.Gone = !exists
	}
	f.seal()
	return []Facts{f}, f.Registered.Group != "" || !f.Connected.IsZero()
}

// asker is a proxy that asks for an entry.
type asker struct {
	proxy.Registering
	// group is the group whose template the entry has, and refusal the reason why the proxy may not have the entry.
	group   *state.WorkloadGroup
	refusal string
}

// askers yields the proxies that ask for an entry, the one that connected last first.
func (q *Queries) askers(r *query.Reader, k api.Key) iter.Seq[asker] {
	return func(yield func(asker) bool) {
		for c := range q.tables.Registering.Group(r, k).All() {
			a := asker{Registering: c}
			if a.group, a.refusal = q.groupFor(r, k.Namespace, c); !yield(a) {
				return
			}
		}
	}
}

// askerFor returns the proxy that an entry is for. Of the proxies that may have it, or else of all, this is the one that connected last. ok
// is false if no proxy asks for it.
func (q *Queries) askerFor(r *query.Reader, k api.Key) (first asker, ok bool) {
	for a := range q.askers(r, k) {
		if a.refusal == "" {
			return a, true
		}
		if !ok {
			first, ok = a, true
		}
	}
	return first, ok
}

// groupFor returns the group of a proxy, or the reason why it cannot be registered.
func (q *Queries) groupFor(r *query.Reader, namespace string, c proxy.Registering) (*state.WorkloadGroup, string) {
	group, ok := q.tables.Registrations.Groups.Get(r, groupKey(namespace, c.Group))
	if !ok {
		return nil, "there is no such WorkloadGroup; create it, or correct AUTO_REGISTER_GROUP in the metadata of the proxy"
	}
	if !c.Verified && !q.tables.RegistersUnverified() {
		return nil, "it has not shown who it is; connect it over TLS, with a token or a certificate of its service account (or set ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY=false where no other client reaches the control plane)"
	}
	if want := group.Spec.GetTemplate().GetServiceAccount(); want != "" && c.Account != "" && want != c.Account {
		return nil, fmt.Sprintf("the proxy has the service account %q and the template of the group %q; use one of them for both", c.Account, want)
	}
	return group, ""
}

func groupKey(namespace, name string) api.Key {
	return api.Key{Kind: api.KindWorkloadGroup, Namespace: namespace, Name: name}
}

// problem returns why proxies that ask for an entry do not get it. Of several with the same group, one is named.
func (q *Queries) problem(r *query.Reader, k api.Key) (list []api.Problem, ok bool) {
	for a := range q.askers(r, k) {
		if q.tables.ControlNamespace() == "" {
			a.refusal = "this control plane registers no proxies, because it reads its configuration from files, or registration is switched off; write the WorkloadEntry yourself"
		}
		group := groupKey(k.Namespace, a.Group)
		if a.refusal == "" || slices.ContainsFunc(list, func(p api.Problem) bool { return p.Object == group }) {
			continue
		}
		p, ok := q.tables.Proxies.Get(r, a.Connection)
		if !ok {
			continue
		}
		list = append(list, api.Problem{Object: group, Severity: api.Error, Code: "registration-refused", Reason: fmt.Sprintf(
			"proxy %s asks to be registered as WorkloadEntry %s/%s of the group, and is not: %s. Its configuration is served all the same",
			proxy.NameOf(p.ID), k.Namespace, k.Name, a.refusal)})
	}
	return list, len(list) > 0
}

// entryFor returns the content of the entry of a proxy. The proxy's own metadata goes before the template of the group.
func entryFor(p *proxy.Proxy, group *networking.WorkloadGroup) *Entry {
	spec := &networking.WorkloadEntry{}
	if group.GetTemplate() != nil {
		spec = proto.Clone(group.Template).(*networking.WorkloadEntry)
	}
	spec.Address = p.Addresses[0]
	spec.Network = cmp.Or(p.Network, spec.Network)
	if p.Locality != (mesh.Locality{}) {
		spec.Locality = strings.TrimRight(strings.Join([]string{p.Locality.Region, p.Locality.Zone, p.Locality.SubZone}, "/"), "/")
	}
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	maps.Copy(labels, group.GetMetadata().GetLabels())
	for l := range p.Labels.All() {
		labels[l.Name] = l.Value
	}
	spec.Labels = labels
	annotations := map[string]string{}
	maps.Copy(annotations, group.GetMetadata().GetAnnotations())
	for _, own := range []string{api.HealthChecked, api.Controller, api.ConnectedAt, api.DisconnectedAt} {
		delete(annotations, own)
	}
	annotations[api.RegisteredBy] = p.Group
	if group.GetProbe() != nil {
		annotations[api.HealthChecked] = "true"
	}
	return &Entry{Group: groupKey(p.Namespace, p.Group), Labels: labels, Annotations: annotations, Spec: spec}
}
