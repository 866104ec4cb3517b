package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotmesh/pilot/test/podrunner/container"
)

// Ref names a Secret or a ConfigMap.
type Ref struct {
	Secret          bool
	Namespace, Name string
}

func (r Ref) String() string {
	kind := "ConfigMap"
	if r.Secret {
		kind = "Secret"
	}
	return fmt.Sprintf("%s %s/%s", kind, r.Namespace, r.Name)
}

// Objects watches each Secret and ConfigMap that has a User, once, as long as it has one.
type Objects struct {
	ctx    context.Context
	client kubernetes.Interface

	mu      sync.Mutex
	entries map[Ref]*entry
	work    sync.WaitGroup
}

// User is notified when an object it uses has changed. The pointer is its identity.
type User struct{ Changed func() }

type entry struct {
	users   map[*User]bool
	cancel  context.CancelFunc
	secrets *Mirror[*v1.Secret]
	configs *Mirror[*v1.ConfigMap]
}

// NewObjects watches until the context ends; Wait waits for that.
func NewObjects(ctx context.Context, client kubernetes.Interface) *Objects {
	return &Objects{ctx: ctx, client: client, entries: make(map[Ref]*entry)}
}

// Wait waits until all watches have ended.
func (o *Objects) Wait() { o.work.Wait() }

// Use makes the user one of exactly these objects, and of no others.
func (o *Objects) Use(user *User, refs map[Ref]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ref := range refs {
		e := o.entries[ref]
		if e == nil {
			e = o.begin(ref)
			o.entries[ref] = e
		}
		e.users[user] = true
	}
	for ref, e := range o.entries {
		if refs[ref] || !e.users[user] {
			continue
		}
		if delete(e.users, user); len(e.users) == 0 {
			e.cancel()
			delete(o.entries, ref)
		}
	}
}

func (o *Objects) begin(ref Ref) *entry {
	ctx, cancel := context.WithCancel(o.ctx)
	e := &entry{users: make(map[*User]bool), cancel: cancel}
	selector := metav1.ObjectNameField + "=" + ref.Name
	if ref.Secret {
		told := func(*v1.Secret) { o.tell(e) }
		e.secrets = NewMirror(told, told)
		o.work.Go(func() { Follow(ctx, e.secrets, o.client.CoreV1().Secrets(ref.Namespace), selector) })
		return e
	}
	told := func(*v1.ConfigMap) { o.tell(e) }
	e.configs = NewMirror(told, told)
	o.work.Go(func() { Follow(ctx, e.configs, o.client.CoreV1().ConfigMaps(ref.Namespace), selector) })
	return e
}

func (o *Objects) tell(e *entry) {
	o.mu.Lock()
	users := slices.Collect(maps.Keys(e.users))
	o.mu.Unlock()
	for _, user := range users {
		user.Changed()
	}
}

func (o *Objects) entry(ref Ref) (*entry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.entries[ref]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%s is not watched: no pod uses it", ref)
}

// In gives the objects of a namespace. They wait for the first answer of the API server, at most until the context ends.
func (o *Objects) In(ctx context.Context, namespace string) container.Sources {
	return &sources{o, ctx, namespace}
}

type sources struct {
	objects   *Objects
	ctx       context.Context
	namespace string
}

// ConfigMap implements container.Sources.
func (s *sources) ConfigMap(name string) (*v1.ConfigMap, error) {
	ref := Ref{Namespace: s.namespace, Name: name}
	e, err := s.objects.entry(ref)
	if err != nil {
		return nil, err
	}
	return get(s.ctx, e.configs, ref)
}

// Secret implements container.Sources.
func (s *sources) Secret(name string) (*v1.Secret, error) {
	ref := Ref{Secret: true, Namespace: s.namespace, Name: name}
	e, err := s.objects.entry(ref)
	if err != nil {
		return nil, err
	}
	return get(s.ctx, e.secrets, ref)
}

func get[T Object](ctx context.Context, m *Mirror[T], ref Ref) (T, error) {
	var none T
	select {
	case <-m.Synced():
	case <-ctx.Done():
		return none, fmt.Errorf("failed to sync %s cache: %w", ref, context.Cause(ctx))
	}
	object, ok := m.Get(ref.Namespace, ref.Name)
	if !ok {
		return none, container.ErrNotFound
	}
	return object, nil
}

// Refs are the objects that a pod uses.
func Refs(pod *v1.Pod) map[Ref]bool {
	refs := make(map[Ref]bool)
	add := func(secret bool, name string) { refs[Ref{secret, pod.Namespace, name}] = true }
	environment := func(spec *v1.Container) {
		for _, from := range spec.EnvFrom {
			if from.ConfigMapRef != nil {
				add(false, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(true, from.SecretRef.Name)
			}
		}
		for _, variable := range spec.Env {
			if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				add(false, from.ConfigMapKeyRef.Name)
			} else if from != nil && from.SecretKeyRef != nil {
				add(true, from.SecretKeyRef.Name)
			}
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			environment(&list[i])
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		environment((*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.ConfigMap != nil:
			add(false, volume.ConfigMap.Name)
		case volume.Secret != nil:
			add(true, volume.Secret.SecretName)
		case volume.Projected != nil:
			for _, part := range volume.Projected.Sources {
				if part.ConfigMap != nil {
					add(false, part.ConfigMap.Name)
				}
				if part.Secret != nil {
					add(true, part.Secret.Name)
				}
			}
		}
	}
	return refs
}
