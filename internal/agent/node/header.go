package node

import (
	"encoding/base64"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// peerHeader returns the value of the header in which the proxy says what its workload is (envoy.PeerHeader): base64 of two messages, one behind the
// other. Proxies of Istio read a Struct with Istio's keys, and skip the second message, which is a field that Struct does not have. Stock Envoy reads a
// Value, which is the second message, a Struct with the keys of envoy.PeerMetadata; it skips the first one, whose fields are of another type in Value.
func peerHeader(is mesh.WorkloadIdentity, name, namespace, cluster string) string {
	first := texts(nonEmpty(map[string]string{"NAME": name, "NAMESPACE": namespace, "CLUSTER_ID": cluster, "WORKLOAD_NAME": is.Workload}))
	first["LABELS"] = texts(nonEmpty(map[string]string{
		"app": is.App, "version": is.Version, "service.istio.io/canonical-name": is.Service, "service.istio.io/canonical-revision": is.Revision,
	}))
	second := texts(nonEmpty(map[string]string{
		envoy.PeerWorkload: is.Workload, envoy.PeerApp: is.App, envoy.PeerVersion: is.Version, envoy.PeerService: is.Service,
		envoy.PeerRevision: is.Revision, envoy.PeerCluster: cluster,
	}))
	var text []byte
	for _, fields := range []map[string]any{first, second} {
		s, err := structpb.NewStruct(fields)
		if err != nil {
			return "" // a label is not UTF-8: such a workload has no name
		}
		var m proto.Message = s
		if len(text) > 0 {
			m = structpb.NewStructValue(s)
		}
		if text, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(text, m); err != nil {
			return ""
		}
	}
	return base64.StdEncoding.EncodeToString(text)
}

// nonEmpty removes empty texts.
func nonEmpty(m map[string]string) map[string]string {
	for key, text := range m {
		if text == "" {
			delete(m, key)
		}
	}
	return m
}
