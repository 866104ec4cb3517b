package envoy

// Variables in the environment of an Envoy that say what its workload is. Agents set them, so that proxies of different workloads can have
// the same listeners. Some have the names that injected pods have for their agent.
const (
	EnvNamespace         = "POD_NAMESPACE"
	EnvWorkload          = "ISTIO_META_WORKLOAD_NAME"
	EnvCluster           = "ISTIO_META_CLUSTER_ID"
	EnvMesh              = "ISTIO_META_MESH_ID"
	EnvCanonicalService  = "CANONICAL_SERVICE"
	EnvCanonicalRevision = "CANONICAL_REVISION"
	EnvApp               = "PROXY_APP"
	EnvVersion           = "PROXY_APP_VERSION"
	// EnvUnknown is a variable whose value is "unknown".
	EnvUnknown = "PROXY_UNKNOWN"
	// EnvPeerHeader is the value of the header that names the workload to servers (PeerHeader). Only proxies have it whose certificates come from an
	// authority other than the control plane.
	EnvPeerHeader = "PROXY_PEER_METADATA"
)
