package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/retry"
)

// watcher lists and watches one kind for as long as its context lives.
type watcher struct {
	r *run
	t *table
	// versions are the resource in the versions that are tried, the preferred one first.
	versions []resource
	stop     context.CancelFunc
	// hurry has a token if a pause is to end at once.
	hurry chan struct{}

	// The rest belongs to the goroutine of the watcher.
	version int // the index of the version in use
	// failing is the time since when the kind cannot be listed and watched.
	failing time.Time
	// again ends the present attempt when a doubtful list is to be checked; nil if there is none.
	again *time.Timer
	// attempt ends the present attempt.
	attempt context.CancelFunc
}

// watch starts to watch a kind. The caller holds the mutex.
func (r *run) watch(t *table, versions ...resource) *watcher {
	if t.rows == nil {
		t.rows = map[name]content{}
	}
	r.tables[t] = true
	ctx, stop := context.WithCancel(r.watching)
	w := &watcher{r: r, t: t, versions: versions, stop: stop, hurry: make(chan struct{}, 1)}
	r.watchers.Add(1)
	go func() {
		defer r.watchers.Done()
		defer stop()
		w.run(klog.NewContext(ctx, logr.Discard()))
	}()
	return w
}

// run lists and watches until ctx is cancelled. After a failure it pauses, first shortly, then longer.
func (w *watcher) run(ctx context.Context) {
	timing := w.r.timing
	pauses := retry.Pauses(timing.firstPause, timing.longestPause)
	var reflector *cache.Reflector
	quorum := false
	for ctx.Err() == nil {
		if reflector == nil {
			reflector = w.reflector(quorum)
		}
		attempt, cancel := context.WithCancel(ctx)
		w.attempt = cancel
		began := time.Now()
		err := reflector.ListAndWatchWithContext(attempt)
		checking := w.again != nil && attempt.Err() != nil
		cancel()
		w.endCheck()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= timing.settled {
			pauses.Reset()
		}
		another := w.judge(err)
		doubted := w.doubted()
		if doubted != quorum || doubted || apierrors.IsNotFound(err) {
			// A new reflector begins with a list, and does not continue from the last known version.
			quorum, reflector = doubted, nil
		}
		if checking || another {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-w.hurry:
			pauses.Reset()
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// nudge ends the pause of the watcher, because the kind may be served now.
func (w *watcher) nudge() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// reflector returns a reflector for the present version. If quorum is true, its first list is read from the storage of the API
// server, and not from its cache.
func (w *watcher) reflector(quorum bool) *cache.Reflector {
	of := w.versions[w.version]
	silent := logr.Discard()
	return cache.NewReflectorWithOptions(&asked{w, of, quorum}, of.example, &store{w}, cache.ReflectorOptions{
		Name: w.t.what, TypeDescription: w.t.what, Logger: &silent,
		Backoff: &wait.Backoff{Duration: w.r.timing.firstPause, Cap: w.r.timing.longestPause, Factor: 2, Jitter: 1, Steps: 8},
	})
}

// check plans another list, because the last one is doubted. It is called by the goroutine of the watcher, from the store.
func (w *watcher) check(after time.Duration) {
	w.endCheck()
	w.again = time.AfterFunc(after, w.attempt)
}

func (w *watcher) endCheck() {
	if w.again != nil {
		w.again.Stop()
		w.again = nil
	}
}

func (w *watcher) doubted() bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return len(w.t.missing) > 0
}

// judge reports why an attempt ended. It returns true if another version is to be tried at once.
func (w *watcher) judge(err error) (another bool) {
	if apierrors.IsNotFound(err) && w.version+1 < len(w.versions) {
		w.version++
		return true
	}
	w.version = 0
	w.r.update(func() {
		if err == nil || w.r.reach.lost {
			w.failing = time.Time{}
			return
		}
		if w.failing.IsZero() {
			w.failing = time.Now()
		}
		if w.r.tables[w.t] {
			w.failed(err, time.Since(w.failing))
		}
	})
	return false
}

// failed reports that the kind cannot be listed and watched for some time.
func (w *watcher) failed(err error, since time.Duration) {
	if w.t.failed != nil {
		w.t.failed(err)
	}
	if reason := w.reason(err); reason != "" && since >= w.r.timing.startup {
		about := "access/" + w.t.what
		if len(w.r.problems[about]) == 0 {
			w.r.o.Log.Warn("a resource cannot be listed and watched", "cluster", w.r.o.Cluster, "resource", w.t.what, "error", err)
		}
		severity := api.Error
		if w.t.unsupported {
			severity = api.Warning
		}
		w.r.note(about, severity, reason)
	}
	unserved := len(w.versions) > 1 && apierrors.IsNotFound(err) // the kind is defined and no version is served yet
	refused := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	// Without permission it is not known whether there are policies, or which. A kind without a definition has no objects.
	needed := w.t.guards() && !apierrors.IsNotFound(err) || w.r.mustList(w.t)
	if !w.t.excused && !needed && (unserved || refused && since >= w.r.timing.excuse) {
		w.t.excused = true
		if w.t.changed != nil {
			w.t.changed()
		}
	}
	if refused && w.t == w.r.definitions && !w.t.listed {
		w.r.watchKinds() // it is not known which of them exist
	}
}

// reason returns the problem of an attempt that failed; empty if there is none.
func (w *watcher) reason(err error) string {
	of := w.versions[0]
	switch {
	case apierrors.IsNotFound(err) && w.t.guards() && w.r.defined(w.t):
		return fmt.Sprintf("%s is defined, and the API server serves no version of it that is read (v1, v1beta1)%s; serve one of them", w.t.what, w.consequence())
	case apierrors.IsNotFound(err) && (len(w.versions) > 1 || w.t.unsupported):
		return "" // a kind that does not exist
	case apierrors.IsForbidden(err):
		group := of.group
		if group == "" {
			group = `""`
		}
		role := "the ClusterRole of the control plane"
		if of.namespace != "" {
			role = "the Role of the control plane in namespace " + of.namespace
		}
		if w.t.unsupported {
			return fmt.Sprintf("%s are not supported yet, and may not be listed, so it is not known whether there are any: %v; "+
				"add the rule {apiGroups: [%s], resources: [%s], verbs: [list, watch]} to %s", of, err, group, of.name, role)
		}
		return fmt.Sprintf("%s may not be listed and watched: %v; add the rule {apiGroups: [%s], resources: [%s], verbs: [get, list, watch]} "+
			"to %s; their last known state stays in force%s", of, err, group, of.name, role, w.consequence())
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server does not know the resource %s: %v; enable its API group", of, err)
	}
	return fmt.Sprintf("%s cannot be listed and watched: %v; it is tried again, and their last known state stays in force", of, err)
}

// consequence says that the control plane waits for a kind that decides about access; empty if it does not wait.
func (w *watcher) consequence() string {
	if w.r.synced || w.t.listed || !w.t.guards() && !w.r.mustList(w.t) {
		return ""
	}
	return "; until then the control plane is not ready, because without these objects it may open what policies close"
}

// works resolves the problem of the kind: a watch has been accepted.
func (w *watcher) works() {
	w.failing = time.Time{}
	w.r.update(func() {
		if about := "access/" + w.t.what; w.r.tables[w.t] && len(w.r.problems[about]) > 0 {
			w.r.note(about, api.Error, "")
			w.r.o.Log.Info("a resource can be listed and watched again", "cluster", w.r.o.Cluster, "resource", w.t.what)
		}
	})
}

// asked is the lister and watcher of a reflector. It notes whether the API server answers.
type asked struct {
	w      *watcher
	of     resource
	quorum bool
}

// List implements cache.ListerWatcher.
func (a *asked) List(o metav1.ListOptions) (runtime.Object, error) {
	return a.ListWithContext(a.w.r.ctx, o)
}

// Watch implements cache.ListerWatcher.
func (a *asked) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return a.WatchWithContext(a.w.r.ctx, o)
}

// ListWithContext implements cache.ListerWithContext.
func (a *asked) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if a.quorum && o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
	list, err := a.of.list(ctx, o)
	a.w.r.answered(ctx, err)
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (a *asked) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	inner, err := a.of.watch(ctx, o)
	a.w.r.answered(ctx, err)
	if err != nil {
		if o.SendInitialEvents != nil {
			// The reflector would wait here for its own pause, and not notice that it is cancelled.
			err = plain{err}
		}
		return nil, err
	}
	a.w.works()
	return alive(inner, a.w.r.timing.silence, &a.w.r.watchers, func() {
		a.w.r.o.Log.Warn("a watch has been silent for too long; watching again", "cluster", a.w.r.o.Cluster, "resource", a.of.String())
	}), nil
}

// plain hides the type of an error.
type plain struct{ err error }

func (p plain) Error() string { return p.err.Error() }

// store takes in the objects that a reflector delivers.
type store struct{ w *watcher }

// small is the converted content of an object while a list is streamed, before the whole list is taken in.
type small struct{ item }

// Transformer implements cache.TransformingStore: the reflector converts the objects of a streamed list one by one. Only an API
// server that cannot stream lists makes it hold all objects of a list at once.
func (s *store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.convert(o) }
}

func (s *store) convert(o any) (*small, error) {
	if done, ok := o.(*small); ok {
		return done, nil
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, fmt.Errorf("an object of %s has no metadata: %w", s.w.t.what, err)
	}
	n := name{s.w.r.converter.Texts.Of(m.GetNamespace()), m.GetName()}
	object, ok := o.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("an object of %s has the type %T", s.w.t.what, o)
	}
	return &small{item{n, s.w.t.convert(object)}}, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error {
	c, err := s.convert(o)
	if err != nil {
		return err
	}
	s.take(c.item)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("a removed object of %s has no metadata: %w", s.w.t.what, err)
	}
	s.take(item{name{m.GetNamespace(), m.GetName()}, nil})
	return nil
}

func (s *store) take(i item) {
	s.w.r.update(func() {
		if !s.w.r.tables[s.w.t] {
			return // it is watched no more
		}
		doubted := len(s.w.t.missing)
		if c, ok := s.w.t.set(i.name, i.content); ok || len(s.w.t.missing) != doubted {
			var changes []change
			if ok {
				changes = []change{c}
			}
			s.w.r.apply(s.w.t, changes)
		}
	})
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	items := make([]item, 0, len(objects))
	for _, o := range objects {
		c, err := s.convert(o)
		if err != nil {
			return err
		}
		items = append(items, c.item)
	}
	doubted := 0
	timing := s.w.r.timing
	s.w.r.update(func() {
		if !s.w.r.tables[s.w.t] {
			return
		}
		before := len(s.w.t.missing)
		s.w.r.apply(s.w.t, s.w.t.replace(items, time.Now(), timing.doubt))
		doubted = len(s.w.t.missing)
		if doubted > 0 && before == 0 {
			s.w.r.o.Log.Warn("many objects are missing in a list; they are kept until it is confirmed", "cluster", s.w.r.o.Cluster,
				"resource", s.w.t.what, "lacking", doubted)
		}
	})
	if doubted > 0 {
		s.w.check(timing.doubt)
	}
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (s *store) Resync() error { return nil }
