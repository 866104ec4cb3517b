package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// The metadata that tags of metrics read: of endpoints, about their workload, and of clusters, about their service.
const (
	PeerMetadata  = "pilot.peer"
	PeerWorkload  = "workload"
	PeerNamespace = "workload_namespace"
	PeerApp       = "app"
	PeerVersion   = "version"
	PeerService   = "canonical_service"
	PeerRevision  = "canonical_revision"
	PeerCluster   = "cluster"

	ServiceMetadataKey = "pilot.service"
	ServiceHost        = "service"
	ServiceName        = "service_name"
	ServiceNamespace   = "service_namespace"
)

// The headers in which a proxy says what its workload is, as Istio's proxies do: its metadata, and its node id.
const (
	PeerHeader   = "x-envoy-peer-metadata"
	PeerIDHeader = "x-envoy-peer-metadata-id"
)

// SetService adds the service of a cluster, for tags of metrics.
func SetService(m *corev3.Metadata, host, name, namespace string) {
	m.FilterMetadata[ServiceMetadataKey] = texts(map[string]string{ServiceHost: host, ServiceName: name, ServiceNamespace: namespace})
}

// Peers say whether the endpoints of an assignment have metadata for tags of metrics, and in which namespace they are.
type Peers struct {
	On        bool
	Namespace string
}

// peer is the metadata about the workload of an endpoint.
func (p Peers) peer(e mesh.PortEndpoint) *structpb.Struct {
	is := e.Identity()
	return texts(map[string]string{
		PeerWorkload: is.Workload, PeerNamespace: p.Namespace, PeerApp: is.App, PeerVersion: is.Version,
		PeerService: is.Service, PeerRevision: is.Revision, PeerCluster: e.Cluster,
	})
}

// endpointMetadata is the metadata of an endpoint; nil for none. External endpoints have none about the mesh.
func (p Peers) endpointMetadata(e mesh.PortEndpoint, external bool) *corev3.Metadata {
	var m *corev3.Metadata
	if !external && e.TakesMeshTLS() {
		m = meshTLSMetadata()
	}
	if external || !p.On {
		return m
	}
	if m == nil {
		m = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	m.FilterMetadata[PeerMetadata] = p.peer(e)
	return m
}

// texts returns the texts that are not empty.
func texts(of map[string]string) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, text := range of {
		if text != "" {
			s.Fields[key] = structpb.NewStringValue(text)
		}
	}
	return s
}
