package loop

import (
	"context"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
)

// Kept is the value of a query that the loop keeps fresh for a controller: a part of the program that does outside what the value says.
type Kept[V any] struct {
	loop    *Loop
	value   V // belongs to the loop's goroutine
	known   chan struct{}
	changed chan struct{}
}

// Keep keeps the value of a query for a key fresh while the loop runs. observe is the Observe method of the query. Keep must be called
// before Run, and at most once for each query and key.
func Keep[K, V any](l *Loop, observe func(k K, fn func(V)) (release func()), k K) *Kept[V] {
	kept := &Kept[V]{loop: l, known: make(chan struct{}), changed: make(chan struct{}, 1)}
	l.kept = append(l.kept, func() (release func()) {
		return observe(k, kept.set)
	})
	return kept
}

// Want is Keep for a query of a controller's own, which it defines. fn is the function of the query, and eq decides whether a result equals the former
// one; see query.Define.
func Want[V any](l *Loop, name string, eq func(a, b V) bool, fn func(r *query.Reader, t *state.Tables, q *classes.Queries) V) *Kept[V] {
	// The query has results of any type, so that the compiler translates only one for all controllers.
	own := query.Define(l.graph, name, func(a, b any) bool { return eq(a.(V), b.(V)) }, func(r *query.Reader, _ struct{}) (any, bool) {
		return fn(r, l.tables, l.queries), true
	})
	return Keep(l, func(k struct{}, set func(V)) (release func()) {
		return own.Observe(k, func(v any, ok bool) {
			if ok {
				set(v.(V))
			}
		})
	}, struct{}{})
}

// set takes a new value.
func (k *Kept[V]) set(v V) {
	k.value = v
	select {
	case <-k.known:
	default:
		close(k.known)
	}
	select {
	case k.changed <- struct{}{}:
	default: // the controller has not looked at an earlier change yet
	}
}

// In returns the value in a view; the zero value before the first one. It may be called within Inspect only.
func (k *Kept[V]) In(*View) V { return k.value }

// Look returns the value between two commits. It waits for the first one.
func (k *Kept[V]) Look(ctx context.Context) (v V, err error) {
	select {
	case <-k.known:
		return Look(ctx, k.loop, k.In)
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// Then returns a function that calls follow with the value between two commits, unless its context ends before.
func (k *Kept[V]) Then(follow func(V)) func(context.Context) {
	return func(ctx context.Context) {
		if v, err := k.Look(ctx); err == nil {
			follow(v)
		}
	}
}

// Changed has a token after the value has changed. It is for one reader.
func (k *Kept[V]) Changed() <-chan struct{} { return k.changed }
