// Package kubeclient makes clients of an API server for the few kinds of Kubernetes that programs of ours read and write one object at a time.
//
// The clients of client-go/kubernetes do the same, and share a scheme that registers every kind of Kubernetes, which the linker then keeps with
// all its methods. Here each group registers only the kinds below, so that a program has no others.
//
// Invariants: requests are the ones of client-go's clients: protobuf unless the configuration names a content type, the user agent, limits and
// transport of the configuration. A group is one client with one limit of requests. Goroutines: the package starts none, except for watches.
package kubeclient

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Scheme returns a scheme of one version of a group with some kinds, and the options and answers of every request.
func Scheme(gv schema.GroupVersion, kinds ...runtime.Object) *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(gv, kinds...)
	metav1.AddToGroupVersion(s, gv)
	return s
}

// group is a client of one version of a group.
type group struct {
	rest   *rest.RESTClient
	params runtime.ParameterCodec
}

func newGroup(config *rest.Config, gv schema.GroupVersion, s *runtime.Scheme) (group, error) {
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &gv, "/apis"
	if gv.Group == "" {
		own.APIPath = "/api"
	}
	own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(s, serializer.NewCodecFactory(s)).WithoutConversion()
	if own.UserAgent == "" {
		own.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(own)
	return group{client, runtime.NewParameterCodec(s)}, err
}

// object is an object with metadata.
type object interface {
	runtime.Object
	metav1.Object
}

// Creator creates objects of a kind. For reviews that is all there is.
type Creator[T object] struct {
	group

	namespace, resource string
	name, sub           string // of a subresource that is created; otherwise empty
	empty               func() T
}

// Resource reads and writes the objects of a kind, in one namespace, or in all of them.
type Resource[T object, L runtime.Object] struct {
	Creator[T]

	emptyList func() L
}

func creator[O any, T interface {
	*O
	object
}](g group, namespace, resource string) *Creator[T] {
	return &Creator[T]{group: g, namespace: namespace, resource: resource, empty: func() T { return new(O) }}
}

func resource[O, M any, T interface {
	*O
	object
}, L interface {
	*M
	runtime.Object
}](g group, namespace, resource string) *Resource[T, L] {
	return &Resource[T, L]{*creator[O, T](g, namespace, resource), func() L { return new(M) }}
}

// request completes a request about a resource.
func (c *Creator[T]) request(r *rest.Request, name string, options runtime.Object, subresources ...string) *rest.Request {
	r.UseProtobufAsDefault().NamespaceIfScoped(c.namespace, c.namespace != "").Resource(c.resource)
	if name != "" {
		r.Name(name).SubResource(subresources...)
	}
	if options != nil {
		r.VersionedParams(options, c.params)
	}
	return r
}

// Create creates an object, and returns it as the API server has it.
func (c *Creator[T]) Create(ctx context.Context, o T, options metav1.CreateOptions) (T, error) {
	result := c.empty()
	var sub []string
	if c.sub != "" {
		sub = []string{c.sub}
	}
	err := c.request(c.rest.Post(), c.name, &options, sub...).Body(o).Do(ctx).Into(result)
	return result, err
}

// Get returns the object of a name.
func (r *Resource[T, L]) Get(ctx context.Context, name string, options metav1.GetOptions) (T, error) {
	result := r.empty()
	err := r.request(r.rest.Get(), name, &options).Do(ctx).Into(result)
	return result, err
}

// List returns the objects that options select.
func (r *Resource[T, L]) List(ctx context.Context, options metav1.ListOptions) (L, error) {
	result := r.emptyList()
	err := r.request(r.rest.Get(), "", &options).Timeout(timeout(options)).Do(ctx).Into(result)
	return result, err
}

// Watch returns the changes of the objects that options select.
func (r *Resource[T, L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return r.request(r.rest.Get(), "", &options).Timeout(timeout(options)).Watch(ctx)
}

func timeout(options metav1.ListOptions) time.Duration {
	if options.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*options.TimeoutSeconds) * time.Second
}

// Update writes an object, or a subresource of it, and returns the object as the API server has it.
func (r *Resource[T, L]) Update(ctx context.Context, o T, options metav1.UpdateOptions, subresources ...string) (T, error) {
	result := r.empty()
	err := r.request(r.rest.Put(), o.GetName(), &options, subresources...).Body(o).Do(ctx).Into(result)
	return result, err
}

// Patch changes the object of a name, and returns it as the API server has it.
func (r *Resource[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions) (T, error) {
	result := r.empty()
	err := r.request(r.rest.Patch(kind), name, &options).Body(patch).Do(ctx).Into(result)
	return result, err
}

// Delete deletes the object of a name.
func (r *Resource[T, L]) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return r.request(r.rest.Delete(), name, nil).Body(&options).Do(ctx).Error()
}
