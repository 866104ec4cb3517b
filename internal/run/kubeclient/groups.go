package kubeclient

import (
	"net/url"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
)

// Core is a client of the group without a name.
type Core struct{ group }

// NewCore returns a client. It sends no request.
func NewCore(config *rest.Config) (*Core, error) {
	s := Scheme(core.SchemeGroupVersion, &core.ConfigMap{}, &core.ConfigMapList{}, &core.Event{}, &core.EventList{}, &core.Namespace{}, &core.NamespaceList{},
		&core.Node{}, &core.NodeList{}, &core.Pod{}, &core.PodList{}, &core.PodLogOptions{}, &core.Secret{}, &core.SecretList{}, &core.Service{}, &core.ServiceList{},
		&core.ServiceAccount{}, &core.ServiceAccountList{})
	s.AddKnownTypes(authentication.SchemeGroupVersion, &authentication.TokenRequest{})
	g, err := newGroup(config, core.SchemeGroupVersion, s)
	return &Core{g}, err
}

// ConfigMaps is the client of the ConfigMaps of a namespace.
func (c *Core) ConfigMaps(namespace string) *Resource[*core.ConfigMap, *core.ConfigMapList] {
	return resource[core.ConfigMap, core.ConfigMapList](c.group, namespace, "configmaps")
}

// Events is the client of the Events of a namespace.
func (c *Core) Events(namespace string) *Resource[*core.Event, *core.EventList] {
	return resource[core.Event, core.EventList](c.group, namespace, "events")
}

// Namespaces is the client of namespaces.
func (c *Core) Namespaces() *Resource[*core.Namespace, *core.NamespaceList] {
	return resource[core.Namespace, core.NamespaceList](c.group, "", "namespaces")
}

// Nodes is the client of nodes.
func (c *Core) Nodes() *Resource[*core.Node, *core.NodeList] {
	return resource[core.Node, core.NodeList](c.group, "", "nodes")
}

// Pods is the client of the pods of a namespace; of all, if it is empty.
func (c *Core) Pods(namespace string) *Resource[*core.Pod, *core.PodList] {
	return resource[core.Pod, core.PodList](c.group, namespace, "pods")
}

// Secrets is the client of the Secrets of a namespace.
func (c *Core) Secrets(namespace string) *Resource[*core.Secret, *core.SecretList] {
	return resource[core.Secret, core.SecretList](c.group, namespace, "secrets")
}

// Services is the client of the Services of a namespace.
func (c *Core) Services(namespace string) *Resource[*core.Service, *core.ServiceList] {
	return resource[core.Service, core.ServiceList](c.group, namespace, "services")
}

// ServiceAccounts is the client of the service accounts of a namespace.
func (c *Core) ServiceAccounts(namespace string) *Resource[*core.ServiceAccount, *core.ServiceAccountList] {
	return resource[core.ServiceAccount, core.ServiceAccountList](c.group, namespace, "serviceaccounts")
}

// Tokens creates tokens of a service account.
func (c *Core) Tokens(namespace, account string) *Creator[*authentication.TokenRequest] {
	t := creator[authentication.TokenRequest](c.group, namespace, "serviceaccounts")
	t.name, t.sub = account, "token"
	return t
}

// Log returns the request for the log of a container.
func (c *Core) Log(namespace, pod string, options *core.PodLogOptions) *rest.Request {
	return c.rest.Get().Namespace(namespace).Name(pod).Resource("pods").SubResource("log").VersionedParams(options, c.params)
}

// PortForward returns the address that connections to the ports of a pod begin at.
func (c *Core) PortForward(namespace, pod string) *url.URL {
	return c.rest.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
}

// RESTClient is the client for requests of another form.
func (c *Core) RESTClient() rest.Interface { return c.rest }

// Apps is a client of the group apps.
type Apps struct{ group }

// NewApps returns a client. It sends no request.
func NewApps(config *rest.Config) (*Apps, error) {
	g, err := newGroup(config, apps.SchemeGroupVersion,
		Scheme(apps.SchemeGroupVersion, &apps.DaemonSet{}, &apps.DaemonSetList{}, &apps.Deployment{}, &apps.DeploymentList{}))
	return &Apps{g}, err
}

// DaemonSets is the client of the DaemonSets of a namespace; of all, if it is empty.
func (c *Apps) DaemonSets(namespace string) *Resource[*apps.DaemonSet, *apps.DaemonSetList] {
	return resource[apps.DaemonSet, apps.DaemonSetList](c.group, namespace, "daemonsets")
}

// Deployments is the client of the Deployments of a namespace; of all, if it is empty.
func (c *Apps) Deployments(namespace string) *Resource[*apps.Deployment, *apps.DeploymentList] {
	return resource[apps.Deployment, apps.DeploymentList](c.group, namespace, "deployments")
}

// Hooks is a client of the group admissionregistration.k8s.io.
type Hooks struct{ group }

// NewHooks returns a client. It sends no request.
func NewHooks(config *rest.Config) (*Hooks, error) {
	gv := admissionregistration.SchemeGroupVersion
	g, err := newGroup(config, gv, Scheme(gv,
		&admissionregistration.MutatingWebhookConfiguration{}, &admissionregistration.MutatingWebhookConfigurationList{},
		&admissionregistration.ValidatingWebhookConfiguration{}, &admissionregistration.ValidatingWebhookConfigurationList{}))
	return &Hooks{g}, err
}

// Mutating is the client of MutatingWebhookConfigurations.
func (c *Hooks) Mutating() *Resource[*admissionregistration.MutatingWebhookConfiguration, *admissionregistration.MutatingWebhookConfigurationList] {
	return resource[admissionregistration.MutatingWebhookConfiguration, admissionregistration.MutatingWebhookConfigurationList](c.group, "", "mutatingwebhookconfigurations")
}

// Validating is the client of ValidatingWebhookConfigurations.
func (c *Hooks) Validating() *Resource[*admissionregistration.ValidatingWebhookConfiguration, *admissionregistration.ValidatingWebhookConfigurationList] {
	return resource[admissionregistration.ValidatingWebhookConfiguration, admissionregistration.ValidatingWebhookConfigurationList](c.group, "", "validatingwebhookconfigurations")
}

// TokenReviews returns a client that asks whose tokens are. It sends no request.
func TokenReviews(config *rest.Config) (*Creator[*authentication.TokenReview], error) {
	g, err := newGroup(config, authentication.SchemeGroupVersion, Scheme(authentication.SchemeGroupVersion, &authentication.TokenReview{}))
	return creator[authentication.TokenReview](g, "", "tokenreviews"), err
}

// AccessReviews returns a client that asks for the permissions of users. It sends no request.
func AccessReviews(config *rest.Config) (*Creator[*authorization.SubjectAccessReview], error) {
	g, err := newGroup(config, authorization.SchemeGroupVersion, Scheme(authorization.SchemeGroupVersion, &authorization.SubjectAccessReview{}))
	return creator[authorization.SubjectAccessReview](g, "", "subjectaccessreviews"), err
}

// OwnAccessReviews returns a client that asks for the permissions of the caller. It sends no request.
func OwnAccessReviews(config *rest.Config) (*Creator[*authorization.SelfSubjectAccessReview], error) {
	g, err := newGroup(config, authorization.SchemeGroupVersion, Scheme(authorization.SchemeGroupVersion, &authorization.SelfSubjectAccessReview{}))
	return creator[authorization.SelfSubjectAccessReview](g, "", "selfsubjectaccessreviews"), err
}

// SigningRequests returns the client of CertificateSigningRequests. It sends no request.
func SigningRequests(config *rest.Config) (*Resource[*certificates.CertificateSigningRequest, *certificates.CertificateSigningRequestList], error) {
	g, err := newGroup(config, certificates.SchemeGroupVersion,
		Scheme(certificates.SchemeGroupVersion, &certificates.CertificateSigningRequest{}, &certificates.CertificateSigningRequestList{}))
	return resource[certificates.CertificateSigningRequest, certificates.CertificateSigningRequestList](g, "", "certificatesigningrequests"), err
}

// Leases returns the client of the Leases of a namespace. It sends no request.
func Leases(config *rest.Config, namespace string) (*Resource[*coordination.Lease, *coordination.LeaseList], error) {
	g, err := newGroup(config, coordination.SchemeGroupVersion, Scheme(coordination.SchemeGroupVersion, &coordination.Lease{}, &coordination.LeaseList{}))
	return resource[coordination.Lease, coordination.LeaseList](g, namespace, "leases"), err
}

// EndpointSlices is a client of the group discovery.k8s.io.
type EndpointSlices struct{ group }

// NewEndpointSlices returns a client. It sends no request.
func NewEndpointSlices(config *rest.Config) (*EndpointSlices, error) {
	g, err := newGroup(config, discovery.SchemeGroupVersion, Scheme(discovery.SchemeGroupVersion, &discovery.EndpointSlice{}, &discovery.EndpointSliceList{}))
	return &EndpointSlices{g}, err
}

// In is the client of the EndpointSlices of a namespace.
func (c *EndpointSlices) In(namespace string) *Resource[*discovery.EndpointSlice, *discovery.EndpointSliceList] {
	return resource[discovery.EndpointSlice, discovery.EndpointSliceList](c.group, namespace, "endpointslices")
}
