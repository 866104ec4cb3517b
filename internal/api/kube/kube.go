// Package kube defines the values that the control plane reads from the objects of a Kubernetes cluster: services, endpoint slices, pods, nodes,
// namespaces and Secrets.
//
// The values have only fields that something depends on, or soon will: the comment of a field says if nothing does yet. Two versions of
// an object that differ only in other fields, such as a status or a resource version, are equal values. The source makes these
// values from the objects of the API server, and they are rows of the store as they are.
//
// Invariants: values are immutable, and comparison is exact. Texts that many objects have in common, such as the name of a node
// or a service account, should be interned by the maker. The package starts no goroutines and knows no client of Kubernetes.
package kube

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/credential"
)

// The kinds of the values, as in keys of objects.
const (
	KindService       = "Service"
	KindEndpointSlice = "EndpointSlice"
	KindPod           = "Pod"
	KindNode          = "Node"
	KindNamespace     = "Namespace"
	KindSecret        = "Secret"
	KindConfigMap     = "ConfigMap"
)

// Value is the content of one object: *Service, *Slice, *Pod, *Node, *Namespace or *Secret.
type Value interface {
	// Kind returns the kind of the object.
	Kind() string
	// Same reports whether another value is of the same kind and has the same content.
	Same(Value) bool
}

// ServiceType is how clients reach a service.
type ServiceType uint8

// The types of services.
const (
	// ClusterIP services have addresses of their own. NodePort and LoadBalancer services belong here, too.
	ClusterIP ServiceType = iota
	// Headless services have no address. Clients reach the addresses of the endpoints.
	Headless
	// ExternalName services are other names for a host.
	ExternalName
)

// Service is a Service.
type Service struct {
	// Created is metadata.creationTimestamp in microseconds since 1970.
	Created int64
	Type    ServiceType
	// Addresses are spec.clusterIPs, and spec.clusterIP if it is not among them; none for headless services.
	Addresses []string
	Ports     []ServicePort
	// Selector is spec.selector, sorted by name; empty if the endpoints are not pods.
	Selector mesh.Labels
	// ExternalName is spec.externalName, in lower case without a dot at the end; empty for the other types.
	ExternalName string
	// ExportTo is the annotation networking.istio.io/exportTo, split at commas; nil without it.
	ExportTo []string
	// ServiceAccounts are service accounts of the namespace in the annotation alpha.istio.io/kubernetes-serviceaccounts, and
	// Identities are the whole identities in the annotation alpha.istio.io/canonical-serviceaccounts. Endpoints may have these, too.
	ServiceAccounts, Identities []string
	// Distribution is spec.trafficDistribution, and Annotation is the annotation networking.istio.io/traffic-distribution; empty
	// without them.
	Distribution, Annotation string
	// NodeLocal is true if spec.internalTrafficPolicy is Local: only endpoints on the node of the client are used.
	NodeLocal bool
	// SamePorts is true if gateways behind the Service listen at the ports of their servers, and not at its target ports.
	SamePorts bool
	// Session says whether requests of a session reach the same endpoint, by labels of the Service.
	Session mesh.Session
	// Written is true for a Service of a file, for which no controller makes endpoint slices: if it has none, its endpoints are the pods
	// that it selects.
	Written bool
	// DualStack is true for a Service of a file whose pods are reached at their addresses of both IP versions. Of other Services the slices say that.
	DualStack bool
	// Entrance is how proxies outside its network reach the service. It is no part of the rows of Services.
	Entrance Entrance
}

// Entrance is how the endpoints of a Service are reached from outside their network, so that they may be gateways into it.
type Entrance struct {
	// Network is the label topology.istio.io/network: the network into which the Service leads. Empty without it.
	Network string
	// Port is the label networking.istio.io/gatewayPort; 0 if it is not a port.
	Port uint32
	// Addresses are the IP addresses and names of its load balancers, and spec.externalIPs.
	Addresses intern.List[string]
	// ByNode is true for a Service of type NodePort with the annotation traffic.istio.io/nodeSelector. Its addresses are the external ones of the
	// nodes with the labels of NodeLabels, and NodePorts are the ports of the nodes for its own.
	ByNode     bool
	NodeLabels mesh.Labels
	NodePorts  intern.List[NodePort]
}

// NodePort is a port of nodes for a port of a Service.
type NodePort struct{ Port, Node uint32 }

// PortOf returns the port of nodes for a port of the Service; the port itself if they have none.
func (e Entrance) PortOf(port uint32) uint32 {
	for p := range e.NodePorts.All() {
		if p.Port == port {
			return p.Node
		}
	}
	return port
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string
	Number   uint32
	Protocol mesh.Protocol
	// Target is the port of the pods; 0 if TargetName is the name of a port of their containers.
	Target     uint32
	TargetName string
}

// Kind implements Value.
func (*Service) Kind() string { return KindService }

// Same implements Value.
func (s *Service) Same(v Value) bool {
	o, ok := v.(*Service)
	return ok && (s == o || s.Created == o.Created && s.Type == o.Type && s.Selector == o.Selector && s.ExternalName == o.ExternalName &&
		s.Entrance == o.Entrance && s.Distribution == o.Distribution && s.Annotation == o.Annotation && s.NodeLocal == o.NodeLocal && s.SamePorts == o.SamePorts && s.Session == o.Session && s.Written == o.Written && s.DualStack == o.DualStack &&
		slices.Equal(s.Addresses, o.Addresses) && slices.Equal(s.Ports, o.Ports) && slices.Equal(s.ExportTo, o.ExportTo) &&
		slices.Equal(s.ServiceAccounts, o.ServiceAccounts) && slices.Equal(s.Identities, o.Identities))
}

// Slice is an EndpointSlice of addresses. Slices of DNS names have no value: they are not used.
type Slice struct {
	// Service is the name of the service, which is in the namespace of the slice. It is never empty: a slice without a service has
	// no value.
	Service string
	// Controlled is true if the endpoint slice controller manages the slice, so the endpoints are the pods that the
	// service selects.
	Controlled bool
	Ports      intern.List[SlicePort]
	Endpoints  []SliceEndpoint
}

// SlicePort is a port of a slice. It belongs to the port of the service with the same name.
type SlicePort struct {
	Name string
	// Number is 0 if the slice has no number: then each endpoint serves the port of the service.
	Number uint32
}

// SliceEndpoint is an endpoint of a slice with one of its addresses.
type SliceEndpoint struct {
	Address string
	Health  Health
	// Pod is the name of the pod, behind its namespace and a slash if that is not the namespace of the slice; empty if the endpoint
	// refers to no pod.
	Pod string
	// Hostname is the first label of the endpoint's own name, below the service's name; empty if it has none.
	Hostname string
}

// PodName returns the namespace and the name of the pod that an endpoint of a slice in a namespace refers to. The name is empty if it
// refers to none.
func (e SliceEndpoint) PodName(slice string) (namespace, name string) {
	if namespace, name, other := strings.Cut(e.Pod, "/"); other {
		return namespace, name
	}
	return slice, e.Pod
}

// Health is whether an endpoint takes requests.
type Health uint8

// The states of endpoints.
const (
	// Ready endpoints take requests, also if they are about to end.
	Ready Health = iota
	// NotReady endpoints take no requests yet, or not at the moment.
	NotReady
	// Draining endpoints are about to end and still answer. They take no new sessions.
	Draining
	// Ending endpoints are about to end and do not answer.
	Ending
)

// Kind implements Value.
func (*Slice) Kind() string { return KindEndpointSlice }

// Same implements Value.
func (s *Slice) Same(v Value) bool {
	o, ok := v.(*Slice)
	return ok && (s == o || s.Service == o.Service && s.Controlled == o.Controlled && s.Ports == o.Ports && slices.Equal(s.Endpoints, o.Endpoints))
}

// Pod is a Pod that has not ended. Other pods have no value.
type Pod struct {
	// Address is status.podIP, empty if it has none yet, and MoreAddresses are the others of status.podIPs.
	Address       string
	MoreAddresses intern.List[string]
	// Node is the name of its node.
	Node           string
	ServiceAccount string
	Labels         mesh.Labels
	// Ports are the named ports of its containers, in their order.
	Ports intern.List[NamedPort]
	// HostNetwork is true if the pod has the addresses of its node, which other pods may have, too.
	HostNetwork bool
	// NotReady is true if the condition Ready is False.
	NotReady bool
	// Captures is true if the pod is the agent of a CNI plugin, is ready and does not end: then the traffic of pods of its node is captured. It is no
	// part of the rows of Pods.
	Captures bool
	// Unselected is true if the namespace of the pod is not selected (discoverySelectors). Of such a pod, only Node and Captures are set.
	Unselected bool
	// Owner is the workload that the pod belongs to. Metrics name it.
	Owner Workload
}

// Has reports whether an address is one of the pod. It is false for nil.
func (p *Pod) Has(address string) bool {
	return p != nil && (p.Address == address || slices.Contains(p.MoreAddresses.Items(), address))
}

// Identity returns how metrics and traces name the workload of the pod.
func (p *Pod) Identity() mesh.WorkloadIdentity { return mesh.IdentityOf(p.Labels, p.Owner.Name) }

// NamedPort is a named port of a container.
type NamedPort struct {
	Name   string
	Number uint32
	// UDP is true if the protocol is UDP.
	UDP bool
}

// Workload is the owner of pods: a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, Rollout, DeploymentConfig or
// ReplicationController, or the pod itself.
type Workload struct{ Kind, Name string }

// Kind implements Value.
func (*Pod) Kind() string { return KindPod }

// Same implements Value.
func (p *Pod) Same(v Value) bool {
	o, ok := v.(*Pod)
	return ok && *p == *o
}

// Node is a Node.
type Node struct {
	// Locality comes from the labels topology.kubernetes.io/region, topology.kubernetes.io/zone and topology.istio.io/subzone. The older
	// labels failure-domain.beta.kubernetes.io/region and /zone count where the first two are missing.
	Locality mesh.Locality
	// Addresses are its addresses of the type ExternalIP, in their order.
	Addresses intern.List[string]
	// Labels are its labels. They are no part of the rows of Nodes.
	Labels mesh.Labels
	// Uncaptured is true if the node has the taint UncapturedTaint. It is no part of the rows of Nodes.
	Uncaptured bool
}

// UncapturedTaint is the key of the taint with which a new node keeps pods away until the agent of a CNI plugin is ready there. The maker of nodes sets it.
const UncapturedTaint = "cni.istio.io/not-ready"

// The label that pods of the agent of a CNI plugin have, in all meshes like Istio's.
const (
	AgentLabel = "k8s-app"
	AgentValue = "istio-cni-node"
)

// Kind implements Value.
func (*Node) Kind() string { return KindNode }

// Same implements Value.
func (n *Node) Same(v Value) bool {
	o, ok := v.(*Node)
	return ok && *n == *o
}

// Namespace is a Namespace.
type Namespace struct {
	// Distribution is the annotation networking.istio.io/traffic-distribution; empty without it.
	Distribution string
	// Network is the label topology.istio.io/network. The label of the control plane's namespace is the network of the cluster.
	Network string
	// Labels are all its labels.
	Labels mesh.Labels
}

// LabelSet returns the labels of a namespace; none if it is nil.
func (n *Namespace) LabelSet() mesh.Labels {
	if n == nil {
		return mesh.Labels{}
	}
	return n.Labels
}

// TrafficDistribution returns the traffic distribution that a namespace sets for its Services; empty if it is nil.
func (n *Namespace) TrafficDistribution() string {
	if n == nil {
		return ""
	}
	return n.Distribution
}

// Kind implements Value.
func (*Namespace) Kind() string { return KindNamespace }

// Same implements Value.
func (n *Namespace) Same(v Value) bool {
	o, ok := v.(*Namespace)
	return ok && *n == *o
}

// Secret is a Secret that proxies ask for by name, or a folder of files in place of one. Under a key of KindConfigMap it is a ConfigMap with the
// certificates of authorities, and has nothing else.
type Secret struct {
	// Content is its content for TLS; nil if there is no such Secret, or if it cannot be read.
	Content *credential.Secret
	// Trouble is why it cannot be read; empty if it can. It quotes nothing of the content.
	Trouble string
}

// Kind implements Value.
func (*Secret) Kind() string { return KindSecret }

// Same implements Value.
func (s *Secret) Same(v Value) bool {
	o, ok := v.(*Secret)
	return ok && (s == o || s.Trouble == o.Trouble && s.Content.Equal(o.Content))
}
