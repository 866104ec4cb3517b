package request

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// maxNode is the largest size of a node in bytes. Istio's agents send about ten kilobytes.
	maxNode = 2 << 20
	// maxNodeDepth is the largest nesting depth of a node. Metadata is a tree, and its decoding needs stack.
	maxNodeDepth = 300
)

// DecodeNode decodes the node of a request. It refuses a node that is too large or too deeply nested.
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
