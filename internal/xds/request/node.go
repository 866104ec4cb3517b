package request

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// maxNode is the largest node that is decoded. Istio's agents send some ten kilobytes.
	maxNode = 2 << 20
	// maxNodeDepth bounds nesting: metadata is a tree, and decoding one costs stack.
	maxNodeDepth = 300
)

// DecodeNode decodes what a client says about itself, within limits.
func DecodeNode(raw []byte) (*corev3.Node, error) {
	if len(raw) > maxNode {
		return nil, fmt.Errorf("the node takes %d bytes, more than %d: send less metadata", len(raw), maxNode)
	}
	var n corev3.Node
	if err := (proto.UnmarshalOptions{RecursionLimit: maxNodeDepth}).Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("the node cannot be decoded: %w", err)
	}
	return &n, nil
}
