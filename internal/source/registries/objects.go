package registries

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// Object is what a server of configuration says of one object.
type Object struct {
	Key api.Key
	// Object is nil if the present version cannot be used. Denying is the substitute of a refused access policy; nil if it needs none.
	Object, Denying *api.Object
	// Problems are the problems of the present version.
	Problems []api.Problem
}

// ObjectChange is what a server of configuration says of the objects of a kind.
type ObjectChange struct {
	Kind string
	// Is are new versions, and Gone are removed objects.
	Is   []Object
	Gone []api.Key
	// Whole is true if an object that is not in Is is gone.
	Whole bool
	// First is true for the first change of the kind since the server could not be seen. Only such a one can be held back.
	First bool
	// Unread are all resources of the kind that are no objects.
	Unread []Remark
}

// objectSource is the name of the source of the objects that a registry has. Each registry is a source of its own, because several may have an
// object.
func objectSource(registry string) string { return "mcp/" + registry }

// objects are the objects of configuration that a registry has. All of it is under the lock of the source.
type objects struct {
	place         string // in Problems
	ignoreRefused bool
	said          map[api.Key]Object
	held          map[api.Key]bool
	faulty        map[api.Key]bool    // the keys of said with Problems
	unread        map[string][]Remark // by kind
	sent          map[api.Key]*api.Object
	book          *kept.Book
	folder        *kept.Folder // nil if nothing is kept
	recalled      bool
	troubles      []api.Problem // of keeping policies
}

func newObjects(registry string, folder *kept.Folder, ignoreRefused bool) *objects {
	return &objects{
		place: "registry " + registry, ignoreRefused: ignoreRefused, said: map[api.Key]Object{}, held: map[api.Key]bool{}, faulty: map[api.Key]bool{},
		unread: map[string][]Remark{}, sent: map[api.Key]*api.Object{}, book: &kept.Book{}, folder: folder,
	}
}

// recall puts the access policies in force that an earlier run has kept, until the server is read: without them workloads would be open. It
// returns what changes.
func (o *objects) recall() []source.Event {
	if o.folder == nil || o.recalled {
		return nil
	}
	o.recalled = true
	versions, err := o.folder.Load()
	if err != nil {
		o.trouble("the last good versions of access policies cannot be read: %v; until the server is read, there are none", err)
	}
	var events []source.Event
	for _, v := range versions {
		v.Position = api.Position{File: o.place}
		o.book.Put(v)
		o.said[v.Key] = Object{Key: v.Key, Object: v}
		events = append(events, o.settle(v.Key)...)
	}
	o.book.Complete()
	for i := range kept.Parts {
		o.book.Take(i)
	}
	return events
}

func (o *objects) trouble(format string, args ...any) {
	o.troubles = []api.Problem{{Position: api.Position{File: o.place}, Severity: api.Warning, Code: "state-unwritable", Reason: fmt.Sprintf(format, args...)}}
}

// change takes what a server says. It returns what changes, and whether objects are held back that were not before. trusted is true if nothing may be
// held.
func (o *objects) change(c ObjectChange, p Protection, trusted bool) (events []source.Event, holds bool) {
	touched, here := map[api.Key]bool{}, map[api.Key]bool{}
	for _, is := range c.Is {
		if is.Object == nil {
			is.Object = o.said[is.Key].Object // the last good version stays
		}
		o.said[is.Key] = is
		delete(o.held, is.Key)
		touched[is.Key], here[is.Key] = true, true
	}
	gone := map[api.Key]bool{}
	for _, k := range c.Gone {
		gone[k] = true
	}
	for k := range o.said {
		if c.Whole && k.Kind == c.Kind && !here[k] && (c.First || !o.held[k]) {
			gone[k] = true
		}
	}
	hold := c.First && !trusted && o.tooMany(c.Kind, gone, p)
	for k := range gone {
		if _, known := o.said[k]; !known {
			continue
		}
		if touched[k] = true; hold {
			holds = holds || !o.held[k]
			o.held[k] = true
			continue
		}
		delete(o.said, k)
		delete(o.held, k)
	}
	o.unread[c.Kind] = c.Unread
	for _, k := range slices.SortedFunc(maps.Keys(touched), api.Key.Compare) {
		events = append(events, o.settle(k)...)
	}
	return events, holds
}

// tooMany reports whether so much of a kind would be gone that it is held back. A ServiceEntry counts as its endpoints.
func (o *objects) tooMany(kind string, gone map[api.Key]bool, p Protection) bool {
	lost, total := 0, 0
	for k, is := range o.said {
		if k.Kind != kind {
			continue
		}
		total += instancesOf(is.Object)
		if gone[k] {
			lost += instancesOf(is.Object)
		}
	}
	return *p.Hold > 0 && lost >= max(*p.Minimum, 1) && float64(lost) > *p.Threshold*float64(total)
}

func instancesOf(o *api.Object) int {
	if o == nil {
		return 1
	}
	if spec, ok := o.Spec.(*networking.ServiceEntry); ok {
		return max(1, len(spec.Endpoints))
	}
	return 1
}

// release ends the protection, and returns what changes.
func (o *objects) release() (events []source.Event) {
	for _, k := range slices.SortedFunc(maps.Keys(o.held), api.Key.Compare) {
		delete(o.said, k)
		delete(o.held, k)
		events = append(events, o.settle(k)...)
	}
	return events
}

// settle passes on the version of an object in force, if it is another one than before.
func (o *objects) settle(k api.Key) []source.Event {
	said, known := o.said[k]
	is := o.inForce(said)
	if delete(o.faulty, k); len(said.Problems) > 0 {
		o.faulty[k] = true
	}
	if k.GuardsAccess() {
		if known && said.Object != nil {
			o.book.Put(said.Object)
		} else {
			o.book.Drop(k)
		}
	}
	was := o.sent[k]
	switch {
	case is == nil && was == nil:
		return nil
	case is == nil:
		delete(o.sent, k)
		return []source.Event{{Key: k}}
	case was != nil && was.Hash == is.Hash && was.Position == is.Position:
		return nil
	}
	o.sent[k] = is
	return []source.Event{{Key: k, Object: is, Added: was == nil}}
}

// inForce returns the version of an object that is in force; nil if there is none.
func (o *objects) inForce(of Object) *api.Object {
	if of.Object == nil && !o.ignoreRefused {
		return of.Denying
	}
	return of.Object
}

// withdraw returns the events that remove everything. Kept objects are forgotten.
func (o *objects) withdraw() (events []source.Event) {
	for _, k := range slices.SortedFunc(maps.Keys(o.said), api.Key.Compare) {
		delete(o.said, k)
		events = append(events, o.settle(k)...)
	}
	clear(o.held)
	clear(o.unread)
	return events
}

// problems are the Problems of all objects.
func (o *objects) problems() (all []api.Problem) {
	for _, k := range slices.SortedFunc(maps.Keys(o.faulty), api.Key.Compare) {
		is := o.said[k]
		all = append(all, is.Problems...)
		if in := o.inForce(is); in != nil && in == is.Denying {
			all = append(all, in.Denial())
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(o.unread)) {
		for _, m := range o.unread[kind] {
			all = append(all, api.Problem{Position: api.Position{File: o.place}, Severity: api.Warning, Code: "registry-unread", Field: m.Place, Reason: m.Reason})
		}
	}
	return append(all, o.troubles...)
}

// count returns the numbers of services and instances in force.
func (o *objects) count() (services, instances int) {
	for _, is := range o.sent {
		switch spec := is.Spec.(type) {
		case *networking.ServiceEntry:
			services++
			instances += len(spec.Endpoints)
		case *networking.WorkloadEntry:
			instances++
		}
	}
	return services, instances
}

// save keeps the access policies that have changed for the next run. It belongs to the goroutine of Run, and needs no lock.
func (o *objects) save(log *slog.Logger) {
	if o.folder == nil {
		return
	}
	for _, i := range o.book.Changed() {
		data, left, err := kept.Encode(o.book.Take(i))
		if err == nil {
			err = o.folder.Save(i, data)
		}
		if err != nil {
			o.book.Retry(i)
			log.Warn("the last good versions of access policies cannot be kept", "source", o.place, "error", err)
		}
		if len(left) > 0 {
			log.Warn("there is no room for the last good versions of all access policies", "source", o.place, "without", len(left), "example", left[0].String())
		}
	}
}
