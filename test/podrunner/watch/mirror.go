// Package watch keeps what a node reads from the API server: its pods, the services, and those Secrets and ConfigMaps that
// its pods refer to, each watched by name because a node may see no others. A list or watch that breaks is repeated by
// client-go's Reflector; until it works again the last state stands.
package watch

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Object is what the API server has.
type Object interface {
	runtime.Object
	metav1.Object
}

// Mirror has the objects of one list, and reports changes. It drops the parts of objects that this program does not read.
type Mirror[T Object] struct {
	// Changed and Gone are called one at a time, in the order of changes; either may be nil.
	Changed func(T)
	Gone    func(T)

	mu      sync.Mutex
	objects map[string]T
	synced  chan struct{}
	once    sync.Once
}

// NewMirror makes an empty mirror.
func NewMirror[T Object](changed, gone func(T)) *Mirror[T] {
	return &Mirror[T]{Changed: changed, Gone: gone, objects: make(map[string]T), synced: make(chan struct{})}
}

// Synced is closed when the first list has arrived.
func (m *Mirror[T]) Synced() <-chan struct{} { return m.synced }

// Get returns an object by namespace and name.
func (m *Mirror[T]) Get(namespace, name string) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	object, ok := m.objects[namespace+"/"+name]
	return object, ok
}

// All returns the objects that fit, in no order.
func (m *Mirror[T]) All(fits func(T) bool) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []T
	for _, object := range m.objects {
		if fits(object) {
			all = append(all, object)
		}
	}
	return all
}

// Lister is a typed client's part for one kind, such as CoreV1().Pods(namespace).
type Lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// Follow keeps the mirror up to date until the context ends.
func Follow[T Object, L runtime.Object](ctx context.Context, m *Mirror[T], client Lister[L], fieldSelector string) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = fieldSelector
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			options.FieldSelector = fieldSelector
			return client.Watch(ctx, options)
		},
	}
	var kind T
	cache.NewReflectorWithOptions(source, kind, m, cache.ReflectorOptions{MinWatchTimeout: 10 * time.Minute}).RunWithContext(ctx)
}

func key(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// Add implements cache.ReflectorStore.
func (m *Mirror[T]) Add(object any) error { return m.Update(object) }

// Update implements cache.ReflectorStore.
func (m *Mirror[T]) Update(object any) error {
	m.put(object.(T))
	return nil
}

func (m *Mirror[T]) put(object T) {
	object.SetManagedFields(nil)
	m.mu.Lock()
	old, had := m.objects[key(object)]
	m.objects[key(object)] = object
	m.mu.Unlock()
	if had && old.GetUID() != object.GetUID() && m.Gone != nil {
		m.Gone(old) // deleted and made again unseen
	}
	if had && old.GetResourceVersion() == object.GetResourceVersion() {
		return
	}
	if m.Changed != nil {
		m.Changed(object)
	}
}

// Delete implements cache.ReflectorStore.
func (m *Mirror[T]) Delete(object any) error {
	m.mu.Lock()
	old, had := m.objects[key(object.(T))]
	delete(m.objects, key(object.(T)))
	m.mu.Unlock()
	if had && m.Gone != nil {
		m.Gone(old)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *Mirror[T]) Replace(list []any, _ string) error {
	now := make(map[string]bool, len(list))
	for _, object := range list {
		now[key(object.(T))] = true
	}
	for _, old := range m.All(func(old T) bool { return !now[key(old)] }) {
		if err := m.Delete(old); err != nil {
			return err
		}
	}
	for _, object := range list {
		m.put(object.(T))
	}
	m.once.Do(func() { close(m.synced) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *Mirror[T]) Resync() error { return nil }
