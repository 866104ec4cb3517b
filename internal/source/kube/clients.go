package kube

import (
	"context"
	"net/http"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// clients are the clients of one API server. They share their connections and the limit of requests.
type clients struct {
	http *http.Client
	// core and discovery are for the typed objects of these groups, which the API server sends as protobuf.
	core, discovery *rest.RESTClient
	// metadata is for objects whose metadata alone is read.
	metadata metadata.Interface
	// dynamic is for custom resources.
	dynamic dynamic.Interface
	params  runtime.ParameterCodec
}

const protobuf = "application/vnd.kubernetes.protobuf"

func newClients(o Options) (*clients, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = o.QPS, o.Burst
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
	config.UserAgent = "pilot-discovery"
	config.WarningHandler = rest.NoWarnings{}
	// A timeout would end watches.
	config.Timeout = 0
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	scheme := kubeclient.Scheme(core.SchemeGroupVersion, &core.ConfigMap{}, &core.ConfigMapList{}, &core.Node{}, &core.NodeList{},
		&core.Pod{}, &core.PodList{}, &core.Secret{}, &core.SecretList{}, &core.Service{}, &core.ServiceList{})
	scheme.AddKnownTypes(discovery.SchemeGroupVersion, &discovery.EndpointSlice{}, &discovery.EndpointSliceList{})
	metav1.AddToGroupVersion(scheme, discovery.SchemeGroupVersion)
	c := &clients{http: client, params: runtime.NewParameterCodec(scheme)}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	typed := func(gv schema.GroupVersion, path string) (*rest.RESTClient, error) {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath, own.NegotiatedSerializer = &gv, path, codecs
		own.ContentType, own.AcceptContentTypes = protobuf, protobuf+",application/json"
		return rest.RESTClientForConfigAndClient(own, client)
	}
	if c.core, err = typed(core.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if c.discovery, err = typed(discovery.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfigAndClient(config, client); err != nil {
		return nil, err
	}
	c.dynamic, err = dynamic.NewForConfigAndClient(config, client)
	return c, err
}

// resource is one resource of the API server: how to list and watch it.
type resource struct {
	group, name string
	// namespace is the only one whose objects are listed; empty for all.
	namespace string
	// example is an object of the type that is listed.
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// String returns the name of the resource as kubectl and RBAC rules write it, such as "virtualservices.networking.istio.io".
func (r resource) String() string {
	if r.group == "" {
		return r.name
	}
	return r.name + "." + r.group
}

// filter limits which objects are listed and watched.
type filter struct{ namespace, fields, labels string }

func (f filter) options(o metav1.ListOptions) metav1.ListOptions {
	o.FieldSelector, o.LabelSelector = f.fields, f.labels
	return o
}

// typed returns a resource of the group core or discovery. newList returns an empty list of the type.
func (c *clients) typed(client *rest.RESTClient, name string, f filter, example runtime.Object, newList func() runtime.Object) resource {
	request := func(o metav1.ListOptions) *rest.Request {
		return client.Get().NamespaceIfScoped(f.namespace, f.namespace != "").Resource(name).VersionedParams(&o, c.params)
	}
	return resource{
		group: client.APIVersion().Group, name: name, namespace: f.namespace, example: example,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			err := request(f.options(o)).Do(ctx).Into(list)
			return list, err
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			var timeout time.Duration
			if o.TimeoutSeconds != nil {
				timeout = time.Duration(*o.TimeoutSeconds) * time.Second
			}
			return request(f.options(o)).Timeout(timeout).Watch(ctx)
		},
	}
}

// partial returns a resource whose metadata alone is read.
func (c *clients) partial(of schema.GroupVersionResource, f filter) resource {
	client := c.metadata.Resource(of)
	return resource{
		group: of.Group, name: of.Resource, example: &metav1.PartialObjectMetadata{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, f.options(o))
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, f.options(o))
		},
	}
}

// custom returns a resource of a kind of configuration, in one version.
func (c *clients) custom(kind schema.GroupVersionKind) resource {
	of := kind.GroupVersion().WithResource(api.Kind{Name: kind.Kind}.Plural())
	client := c.dynamic.Resource(of)
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(kind)
	return resource{
		group: of.Group, name: of.Resource, example: example,
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		watch: client.Watch,
	}
}
