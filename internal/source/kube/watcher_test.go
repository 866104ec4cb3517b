package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/source"
)

// The tests in this file are about time, so they run at the fake time of synctest. The tests against a real API server are in
// test/cluster/kubesource.

// served is one version of the resource "pods" of an API server that cannot stream lists.
type served struct {
	refusal error
	began   time.Time

	mu   sync.Mutex
	pods []string
	// asked are the lists that were asked for: when, since the beginning, and the resource version.
	asked []string
}

// serve changes the pods that exist.
func (v *served) serve(pods []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods = pods
}

// lists returns the lists that were asked for.
func (v *served) lists() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.asked)
}

func (v *served) resource() resource {
	return resource{
		name: "pods", example: &core.Pod{},
		list: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.asked = append(v.asked, fmt.Sprintf("%v %q", time.Since(v.began), o.ResourceVersion))
			list := &core.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			for _, name := range v.pods {
				list.Items = append(list.Items, core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
			}
			return list, v.refusal
		},
		watch: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewBadRequest("sendInitialEvents is unknown")
			}
			return watch.NewRaceFreeFake(), nil
		},
	}
}

// watched is a run that watches pods only. The mutex of the run guards all fields.
type watched struct {
	*run
	pods    *table
	removed []string
	synced  bool
}

// removals returns the objects that the batches removed, and whether the last batch was Synced.
func (w *watched) removals() (removed []string, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.removed), w.synced
}

// Apply implements source.Sink.
func (w *watched) Apply(b source.Batch) {
	w.synced = b.Synced
	for _, e := range b.Events {
		if e.Value == nil {
			w.removed = append(w.removed, e.Key.Name)
		}
	}
}

// watchPods starts to watch pods in these versions. The pods named in known are known already. It must run in a bubble of synctest.
func watchPods(t *testing.T, known []string, versions ...*served) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{}
	s := &Source{o: Options{Cluster: "c1", Config: &rest.Config{}, Log: slog.New(slog.DiscardHandler)}, timing: defaultTiming()}
	w.run = newRun(ctx, s, w)
	w.view = &view{ready: true, all: true}
	w.pods = w.registry("pods", kube.KindPod, func(o runtime.Object) content { return some(w.converter.Pod(o.(*core.Pod))) })
	w.pods.rows = map[name]content{}
	for _, n := range known {
		w.pods.rows[name{"shop", n}] = &kube.Pod{}
	}
	var resources []resource
	for _, v := range versions {
		v.began = time.Now()
		resources = append(resources, v.resource())
	}
	w.update(func() { w.watch(w.pods, resources...) })
	t.Cleanup(func() {
		cancel()
		w.close()
	})
	return w
}

// after waits at the fake time until everything has been done that is due by then.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestDoubtfulListIsAskedForAgain checks that a list that has become empty is requested again when the time of doubt has passed,
// from the storage of the API server and not from its cache, and that objects are removed only then.
func TestDoubtfulListIsAskedForAgain(t *testing.T) {
	known := []string{"a", "b", "c"}
	for _, c := range []struct {
		name    string
		then    []string // what the second list has
		removed []string
	}{
		{"confirmed", nil, known},
		{"not confirmed", known, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &served{}
				w := watchPods(t, known, v)
				after(w.timing.doubt - 1)
				if removed, _ := w.removals(); len(removed) > 0 || len(v.lists()) != 1 {
					t.Errorf("before the time of doubt has passed, %q are removed, lists %q", removed, v.lists())
				}
				v.serve(c.then)
				after(10 * w.timing.doubt)
				if want := []string{`0s "0"`, fmt.Sprintf(`%v ""`, w.timing.doubt)}; !slices.Equal(v.lists(), want) {
					t.Errorf("lists %q, want %q", v.lists(), want)
				}
				if removed, _ := w.removals(); !slices.Equal(removed, c.removed) {
					t.Errorf("removed %q, want %q", removed, c.removed)
				}
			})
		})
	}
}

// TestOlderVersion checks that another version of a kind is tried at once if the API server does not know the preferred one.
func TestOlderVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := &served{refusal: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")}
		older := &served{pods: []string{"a"}}
		w := watchPods(t, nil, unknown, older)
		after(0)
		_, synced := w.removals()
		if want := []string{`0s "0"`}; !slices.Equal(unknown.lists(), want) || !slices.Equal(older.lists(), want) || !synced {
			t.Errorf("lists %q of the preferred version, %q of the other one, synced %v", unknown.lists(), older.lists(), synced)
		}
	})
}

// TestForbiddenKindIsExcused checks that a kind that may not be listed delays Synced for some time only.
func TestForbiddenKindIsExcused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchPods(t, nil, &served{refusal: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)})
		after(w.timing.excuse - 1)
		if _, synced := w.removals(); synced {
			t.Error("synced before the time has passed")
		}
		after(2 * w.timing.longestPause)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.synced || len(w.problems["access/pods"]) != 1 {
			t.Errorf("synced %v, problems %v", w.synced, w.problems)
		}
	})
}

// TestWatchedNoMore checks that objects that arrive after their table was removed cause no event.
func TestWatchedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchPods(t, nil, &served{pods: []string{"a"}})
		after(0)
		w.update(func() { w.remove(w.pods) })
		late := &store{&watcher{r: w.run, t: w.pods}}
		pod := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
		if err := late.Add(pod); err != nil {
			t.Fatal(err)
		}
		if err := late.Replace([]any{pod}, ""); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Equal(w.removed, []string{"a"}) || len(w.pods.rows) > 0 {
			t.Errorf("removed %q, %d rows", w.removed, len(w.pods.rows))
		}
	})
}
