package telemetry

import (
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// The keys of the dynamic metadata of a request, below envoy.PeerMetadata, with what the headers of a client say: a Struct with the keys of
// envoy.PeerMetadata, and the name of the workload.
const (
	headerKey   = "header"
	headerIDKey = "id"
)

// readHeaders is a filter that remembers what a proxy says of its workload in headers, and removes the headers. It is for requests over mutual TLS
// of the mesh only: anybody can send such headers in plain text.
func readHeaders() *hcmv3.HttpFilter {
	said := &metadatav3.Config_KeyValuePair{
		MetadataNamespace: envoy.PeerMetadata, Key: headerKey,
		Type: metadatav3.Config_PROTOBUF_VALUE, Encode: metadatav3.Config_BASE64,
	}
	id := &metadatav3.Config_KeyValuePair{
		MetadataNamespace: envoy.PeerMetadata, Key: headerIDKey,
		RegexValueRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: workloadOfID}, Substitution: `\1\2\3`},
	}
	return envoy.HTTPFilter("envoy.filters.http.header_to_metadata", &metadatav3.Config{RequestRules: []*metadatav3.Config_Rule{
		{Header: envoy.PeerHeader, OnHeaderPresent: said, Remove: true},
		{Header: envoy.PeerIDHeader, OnHeaderPresent: id, Remove: true},
	}})
}

// workloadOfID matches the node id of a proxy of Istio, ROLE~ADDRESS~POD.NAMESPACE~DOMAIN. One of its groups is the name of the workload; all are
// empty if the name is not known. Kubernetes names a pod
//   - of a Deployment NAME-HASH-RANDOM, and of a CronJob NAME-MINUTES-RANDOM (first group),
//   - of a DaemonSet, Job or ReplicaSet NAME-RANDOM, and of a StatefulSet NAME-NUMBER (second group),
//   - of none of these as its user wants (third group). A name of 63 characters is one that Kubernetes has cut.
//
// HASH is a number whose digits are written with the characters 4 to 9, b, c, d and f; RANDOM has five of the characters of SafeEncodeString. See
// https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go.
const workloadOfID = `^[^~]*~[^~]*~(?:` +
	`([^~]+)-(?:[4-9bcdf]{6,10}|[0-9]{8,10})-` + randomOfPod +
	`|([^~]+)-(?:` + randomOfPod + `|[0-9]{1,5})` +
	`|([^~]{1,62}))\.[^~.]+~[^~]*$|^.*$`

// randomOfPod matches the random part of the name of a pod.
const randomOfPod = `[bcdfghj-np-tvwxz24-9]{5}`
