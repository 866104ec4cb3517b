package envoy

import (
	"fmt"
	"slices"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Field numbers of the messages in a ClusterLoadAssignment.
const (
	assignmentName      = 1
	assignmentEndpoints = 2

	groupLocality  = 1
	groupEndpoints = 2
	groupWeight    = 3
	groupPriority  = 5

	localityRegion  = 1
	localityZone    = 2
	localitySubZone = 3

	lbEndpoint = 1
	lbHealth   = 2
	lbMetadata = 3
	lbWeight   = 4

	endpointAddress    = 1
	endpointAdditional = 4
	additionalAddress  = 1

	addressSocket = 1
	addressPipe   = 2
	pipePath      = 1
	socketAddress = 2
	socketPort    = 3

	wrappedValue = 1
)

// EncodeAssignment returns the deterministic encoding of what Assignment returns, without building messages. When
// one of ten thousand endpoints of a service changes, writing the bytes costs a twentieth of building and encoding the
// messages. It panics on text that is not UTF-8, as encoding the message would.
func EncodeAssignment(name string, groups []mesh.Group, external bool, peers Peers) []byte {
	n := 0
	for _, g := range groups {
		n += len(g.Endpoints)
	}
	var meshTLS []byte // the encoded metadata of endpoints that accept the mesh's TLS, if there are any
	if !external && slices.ContainsFunc(groups, hasMeshTLS) {
		meshTLS = encodeMetadata(meshTLSMetadata())
	}
	out := appendText(make([]byte, 0, len(name)+(80+len(meshTLS))*n), assignmentName, name)
	var group []byte
	shift := weightShift(groups)
	for _, g := range groups {
		group = slices.Grow(group[:0], (60+len(meshTLS))*len(g.Endpoints))
		if g.Locality != (mesh.Locality{}) {
			var l []byte
			l = appendText(l, localityRegion, g.Locality.Region)
			l = appendText(l, localityZone, g.Locality.Zone)
			l = appendText(l, localitySubZone, g.Locality.SubZone)
			group = appendBytes(group, groupLocality, l)
		}
		sum := uint32(0)
		var common commonPart
		for _, e := range g.Endpoints {
			is := commonPart{weight: max(e.Weight>>shift, 1), health: healthOf(e), meshTLS: !external && e.TakesMeshTLS()}
			if peers.On {
				is.labels, is.cluster = e.Labels, e.Cluster
			}
			sum += is.weight
			if !is.equal(common) {
				metadata := meshTLS
				if peers.On {
					metadata = encodeMetadata(peers.endpointMetadata(e, external))
				}
				common = is.encode(metadata, is.meshTLS || peers.On)
			}
			group = appendLbEndpoint(group, common.bytes, e)
		}
		if g.Weight > 0 {
			sum = g.Weight
		}
		group = appendWrapped(group, groupWeight, sum)
		group = appendNumber(group, groupPriority, g.Priority)
		out = appendBytes(out, assignmentEndpoints, group)
	}
	return out
}

// commonPart is an LbEndpoint without its address. Most endpoints have the same one as their neighbour.
type commonPart struct {
	weight  uint32
	health  corev3.HealthStatus
	meshTLS bool
	// labels and cluster count if the metadata of endpoints is about their workload.
	labels  mesh.Labels
	cluster string
	bytes   []byte
}

func (c commonPart) equal(o commonPart) bool {
	return o.bytes != nil && c.weight == o.weight && c.health == o.health && c.meshTLS == o.meshTLS && c.labels == o.labels && c.cluster == o.cluster
}

// encodeMetadata returns the encoded field with the metadata of an endpoint.
func encodeMetadata(m *corev3.Metadata) []byte {
	if m == nil {
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Errorf("encode the metadata of endpoints: %w", err))
	}
	return appendBytes(nil, lbMetadata, b)
}

// encode adds the encoding. metadata counts if with is true.
func (c commonPart) encode(metadata []byte, with bool) commonPart {
	c.bytes = appendNumber(nil, lbHealth, uint32(c.health))
	if with {
		c.bytes = append(c.bytes, metadata...)
	}
	c.bytes = appendWrapped(c.bytes, lbWeight, c.weight)
	return c
}

func hasMeshTLS(g mesh.Group) bool {
	return slices.ContainsFunc(g.Endpoints, func(e mesh.PortEndpoint) bool { return e.TakesMeshTLS() })
}

// appendLbEndpoint appends LocalityLbEndpoints.lb_endpoints: an LbEndpoint with an Endpoint with an Address with a SocketAddress or Pipe.
// The sizes of the messages are worked out first, so that each byte is written once.
func appendLbEndpoint(b, common []byte, e mesh.PortEndpoint) []byte {
	kind, text, textField := protowire.Number(addressSocket), e.Address, protowire.Number(socketAddress)
	path, isPipe := e.UnixPath()
	if isPipe {
		kind, text, textField = addressPipe, path, pipePath
	}
	inner := 0
	if text != "" {
		inner = 1 + protowire.SizeBytes(len(text))
	}
	if !isPipe {
		inner += 1 + protowire.SizeVarint(uint64(e.Port))
	}
	address := 1 + protowire.SizeBytes(inner)
	second := encodeSecond(e)
	endpoint := 1 + protowire.SizeBytes(address) + len(second)
	b = appendHeader(b, groupEndpoints, len(common)+1+protowire.SizeBytes(endpoint))
	b = append(b, common...)
	b = appendHeader(b, lbEndpoint, endpoint) // a oneof, which Go encodes after all other fields
	b = appendHeader(b, endpointAddress, address)
	b = appendHeader(b, kind, inner)
	b = appendText(b, textField, text)
	if !isPipe {
		b = protowire.AppendTag(b, socketPort, protowire.VarintType) // a member of a oneof is encoded even if it is zero
		b = protowire.AppendVarint(b, uint64(e.Port))
	}
	return append(b, second...)
}

// encodeSecond returns Endpoint.additional_addresses with the second address of an endpoint; nil if it has none.
func encodeSecond(e mesh.PortEndpoint) []byte {
	if e.Second == "" {
		return nil
	}
	socket := appendText(nil, socketAddress, e.Second)
	socket = protowire.AppendVarint(protowire.AppendTag(socket, socketPort, protowire.VarintType), uint64(e.Port))
	return appendBytes(nil, endpointAdditional, appendBytes(nil, additionalAddress, appendBytes(nil, addressSocket, socket)))
}

// appendHeader appends what precedes the content of a message of a size in bytes.
func appendHeader(b []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// appendText appends a string field. An empty string is left out.
func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	if !utf8.ValidString(s) {
		panic(fmt.Errorf("encode an assignment: %q is not UTF-8", s))
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// appendNumber appends a number field. Zero is left out.
func appendNumber(b []byte, field protowire.Number, n uint32) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

// appendWrapped appends a number as a UInt32Value field.
func appendWrapped(b []byte, field protowire.Number, n uint32) []byte {
	var room [8]byte
	return appendBytes(b, field, appendNumber(room[:0], wrappedValue, n))
}
