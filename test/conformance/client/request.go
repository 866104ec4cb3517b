package client

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Request is a discovery request of either variant. What a variant does not have is left out of it.
type Request struct {
	URL  string
	Node *corev3.Node

	// Nonce is the nonce of the response answered to; Reason, if not empty, makes the answer a rejection.
	Nonce, Reason string

	// Names is the whole list of names, Version the one the client accepted last (State-of-the-World).
	Names   []string
	Version string

	// What changes in the list of names, and what an earlier stream left (delta).
	Subscribe, Unsubscribe []string
	Initial                map[string]string
}

// Encode puts the request on the wire.
func (r Request) Encode(v Variant) ([]byte, error) {
	var detail *status.Status
	if r.Reason != "" {
		detail = &status.Status{Code: int32(codes.InvalidArgument), Message: r.Reason}
	}
	if v == SotW {
		return proto.Marshal(&discoveryv3.DiscoveryRequest{
			Node: r.Node, TypeUrl: r.URL, ResourceNames: r.Names, VersionInfo: r.Version, ResponseNonce: r.Nonce, ErrorDetail: detail,
		})
	}
	return proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		Node: r.Node, TypeUrl: r.URL, ResourceNamesSubscribe: r.Subscribe, ResourceNamesUnsubscribe: r.Unsubscribe,
		InitialResourceVersions: r.Initial, ResponseNonce: r.Nonce, ErrorDetail: detail,
	})
}
