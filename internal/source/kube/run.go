package kube

import (
	"context"
	"slices"
	"sync"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/object"
)

// run is the state of a running source.
type run struct {
	*Source
	ctx  context.Context
	sink source.Sink
	// place is the place of problems that are about the cluster, and not about one object.
	place string
	// reconnected has a token when the API server answers for the first time, or again.
	reconnected chan struct{}
	watchers    sync.WaitGroup
	// watching is the context of the watchers, which stopWatching cancels.
	watching     context.Context
	stopWatching context.CancelFunc

	// mu guards everything below, and the tables.
	mu     sync.Mutex
	closed bool
	tables map[*table]bool
	// namespaces, tags and definitions are tables that the run itself reads. The last two are nil if configuration is not watched.
	namespaces, tags, definitions *table
	kinds                         map[string]*watcher // by name of the kind: the watched kinds of configuration; by name of the definition: unsupported kinds
	settings                      *settings           // nil if nothing is read from ConfigMaps
	kept                          []*table            // of ConfigMaps with the last good versions of access policies
	secrets                       *table              // nil if remote clusters are not read
	credentials                   map[api.Key]*watchedSecret
	converter                     *converter

	mesh      *meshconfig.MeshConfig
	selectors []labels.Selector
	view      *view
	reach     reach

	// problems are the problems that were passed on, by their subject; see report.
	problems map[string][]api.Problem
	// batch has the changes of the current update so far.
	batch  source.Batch
	synced bool
}

func newRun(ctx context.Context, s *Source, sink source.Sink) *run {
	place := "cluster " + s.o.Cluster
	watching, stop := context.WithCancel(ctx)
	return &run{
		watching: watching, stopWatching: stop,
		Source: s, ctx: ctx, sink: sink, place: place,
		reconnected: make(chan struct{}, 1),
		tables:      map[*table]bool{}, kinds: map[string]*watcher{}, credentials: map[api.Key]*watchedSecret{}, problems: map[string][]api.Problem{},
		converter: &converter{Converter: object.Converter{Texts: object.NewTexts(object.TextLimit)}, place: place, ignoreRefused: s.o.IgnoreRefused},
		view:      &view{control: s.o.Namespace},
	}
}

// start starts to watch.
func (r *run) start() {
	r.update(func() {
		if r.o.MeshConfigMap || r.o.NetworksConfigMap {
			r.settings = newSettings(r)
		}
		r.watchRegistry()
		if r.o.Remote != nil {
			r.watchSecrets()
		}
		if !r.o.MeshConfigMap {
			r.useMesh(r.givenMesh()) // which may select namespaces
		}
		if r.o.Configuration {
			if r.o.Policies != nil {
				r.watchKept()
			}
			r.watchConfiguration()
		}
	})
}

// reconnect restarts all watches with other clients. The tables stay as they are, so only differences are passed on.
func (r *run) reconnect(to replacement) {
	r.stopWatching()
	r.watchers.Wait()
	r.clients.http.CloseIdleConnections()
	r.watching, r.stopWatching = context.WithCancel(r.ctx)
	r.update(func() {
		r.clients, r.o.Config = to.clients, to.config
		r.reach = reach{}
		r.watchRegistry()
	})
}

// removeAll removes everything that was passed on, as one batch.
func (r *run) removeAll() {
	r.stopWatching()
	r.watchers.Wait()
	r.update(func() {
		for t := range r.tables {
			r.remove(t)
		}
		for about := range r.problems {
			r.report(about)
		}
	})
}

// close waits until all goroutines have ended. The context of the run must have been cancelled.
func (r *run) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.watchers.Wait()
}

// update calls fn, which may change the state and add to the batch, and passes the batch on if there is anything in it.
func (r *run) update(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	fn()
	b := &r.batch
	b.Source, b.Synced = r.Name(), r.synced || r.complete()
	if len(b.Events) > 0 || len(b.Problems) > 0 || b.Mesh != nil || b.Networks != nil || b.Synced != r.synced {
		slices.SortFunc(b.Events, func(x, y source.Event) int { return x.Key.Compare(y.Key) })
		if b.Synced && !r.synced {
			r.o.Log.Info("the cluster has been listed", "cluster", r.o.Cluster)
		}
		r.synced = b.Synced
		r.sink.Apply(*b)
	}
	r.booked()
	r.batch = source.Batch{}
}

// complete reports whether everything has been listed once.
func (r *run) complete() bool {
	for t := range r.tables {
		if !t.listed && (!t.excused || r.mustList(t)) {
			return false
		}
	}
	return r.view.ready
}

// report replaces the problems with this subject.
func (r *run) report(about string, problems ...api.Problem) {
	was := r.problems[about]
	if slices.Equal(was, problems) {
		return
	}
	r.batch.Problems = append(r.batch.Problems, source.ProblemEvents(was, problems)...)
	if len(problems) == 0 {
		delete(r.problems, about)
	} else {
		r.problems[about] = problems
	}
}

// note replaces the problem of the cluster with this subject. An empty reason resolves it.
func (r *run) note(about string, severity api.Severity, reason string) {
	if reason == "" {
		r.report(about)
		return
	}
	r.report(about, api.Problem{Position: api.Position{File: r.place}, Severity: severity, Code: "cluster-unreadable", Reason: reason})
}

// apply takes in changes of a table.
func (r *run) apply(t *table, changes []change) {
	if t.show != nil {
		for _, c := range changes {
			r.emit(t, c.name, r.shown(t, c.name, c.old, r.view), r.shown(t, c.name, c.new, r.view))
		}
	}
	r.book(t, changes)
	reason, _ := t.doubts(r.timing.doubt)
	r.note("doubt/"+t.what, api.Warning, reason)
	if t.changed != nil {
		t.changed()
	}
}

func (r *run) shown(t *table, n name, c content, v *view) shown {
	if c == nil {
		return shown{}
	}
	return t.show(n, c, v)
}

// emit adds the event of an object to the batch, and the changes of its problems.
func (r *run) emit(t *table, n name, was, is shown) {
	if was.value != is.value || was.object != is.object {
		r.batch.Events = append(r.batch.Events, source.Event{Key: t.key(n), Object: is.object, Value: is.value, Added: was.empty() && !is.empty()})
	}
	if len(was.problems)+len(is.problems) > 0 {
		r.report("object/"+t.key(n).String(), is.problems...)
	}
}

// useMesh takes in the mesh configuration in force; nil means the defaults.
func (r *run) useMesh(m *meshconfig.MeshConfig) {
	list, err := selectors(m)
	if err != nil {
		r.note("selectors", api.Error, "the mesh configuration: "+err.Error()+"; the namespaces that were selected before stay selected")
	} else {
		r.note("selectors", api.Error, "")
		r.selectors = list
	}
	if m == nil {
		m = &meshconfig.MeshConfig{}
	}
	r.mesh = m
	r.look()
	r.tellRemote()
}

// look rebuilds the view, and passes on the objects that it newly shows or no longer shows.
func (r *run) look() {
	was, is := r.view, r.newView()
	if is.equal(was) {
		return
	}
	r.view = is
	for t := range r.tables {
		if t.looked != nil {
			t.looked()
		}
		if t.show == nil {
			continue
		}
		for n, c := range t.rows {
			r.emit(t, n, t.show(n, c, was), t.show(n, c, is))
		}
	}
}

// newView returns the view for the present state.
func (r *run) newView() *view {
	v := &view{control: r.o.Namespace, all: len(r.selectors) == 0, revisions: map[string]bool{r.o.Revision: true}}
	if r.tags != nil {
		for _, tag := range r.tags.rows {
			if t := tag.(*revisionTag); t.revision == r.o.Revision {
				v.revisions[t.tag] = true
			}
		}
	}
	v.ready = r.mesh != nil && (v.all || r.namespaces == nil || r.namespaces.listed || r.namespaces.excused && !r.mustList(r.namespaces))
	if v.all {
		return v
	}
	v.selected = map[string]bool{}
	for n, c := range r.namespaces.rows {
		if selects(r.selectors, c.(*kube.Namespace).Labels) {
			v.selected[n.name] = true
		}
	}
	return v
}

// remove removes a table and its objects.
func (r *run) remove(t *table) {
	t.changed, t.failed, t.looked = nil, nil, nil
	r.apply(t, t.clear())
	r.report("access/" + t.what)
	delete(r.tables, t)
}
