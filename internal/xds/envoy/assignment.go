package envoy

import (
	"fmt"
	"slices"
	"unicode/utf8"

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

	endpointAddress = 1

	addressSocket = 1
	addressPipe   = 2
	pipePath      = 1
	socketAddress = 2
	socketPort    = 3

	wrappedValue = 1
)

// EncodeAssignment returns the deterministic encoding of what Assignment returns, without building messages. A service
// may have ten thousand endpoints of which one changes; writing the bytes costs a twentieth of building and encoding the
// messages. It panics on text that is not UTF-8, as encoding the message would.
func EncodeAssignment(name string, groups []mesh.Group, external bool) []byte {
	n := 0
	for _, g := range groups {
		n += len(g.Endpoints)
	}
	var meshTLS []byte // the encoded metadata of endpoints that accept the mesh's TLS, if there are any
	if !external && slices.ContainsFunc(groups, hasMeshTLS) {
		m, err := proto.MarshalOptions{Deterministic: true}.Marshal(meshTLSMetadata())
		if err != nil {
			panic(fmt.Errorf("encode the metadata of endpoints: %w", err))
		}
		meshTLS = appendBytes(nil, lbMetadata, m)
	}
	out := appendText(make([]byte, 0, len(name)+(80+len(meshTLS))*n), assignmentName, name)
	var group, lb []byte
	shift := weightShift(groups)
	for _, g := range groups {
		group = group[:0]
		if g.Locality != (mesh.Locality{}) {
			var l []byte
			l = appendText(l, localityRegion, g.Locality.Region)
			l = appendText(l, localityZone, g.Locality.Zone)
			l = appendText(l, localitySubZone, g.Locality.SubZone)
			group = appendBytes(group, groupLocality, l)
		}
		sum := uint32(0)
		for _, e := range g.Endpoints {
			weight := max(e.Weight>>shift, 1)
			sum += weight
			lb = appendNumber(lb[:0], lbHealth, uint32(healthOf(e)))
			if !external && e.TakesMeshTLS() {
				lb = append(lb, meshTLS...)
			}
			lb = appendWrapped(lb, lbWeight, weight)
			lb = appendEndpoint(lb, e) // a oneof, which Go encodes after all other fields
			group = appendBytes(group, groupEndpoints, lb)
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

func hasMeshTLS(g mesh.Group) bool {
	return slices.ContainsFunc(g.Endpoints, func(e mesh.PortEndpoint) bool { return e.TakesMeshTLS() })
}

// appendEndpoint appends LbEndpoint.endpoint: an Endpoint with an Address with a SocketAddress or Pipe.
func appendEndpoint(b []byte, e mesh.PortEndpoint) []byte {
	var room [128]byte
	kind, inner := protowire.Number(addressSocket), room[:0]
	if path, ok := e.UnixPath(); ok {
		kind, inner = addressPipe, appendText(inner, pipePath, path)
	} else {
		inner = appendText(inner, socketAddress, e.Address)
		inner = protowire.AppendTag(inner, socketPort, protowire.VarintType) // a member of a oneof is encoded even if it is zero
		inner = protowire.AppendVarint(inner, uint64(e.Port))
	}
	address := 1 + protowire.SizeBytes(len(inner))
	b = protowire.AppendTag(b, lbEndpoint, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(1+protowire.SizeBytes(address)))
	b = protowire.AppendTag(b, endpointAddress, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(address))
	return appendBytes(b, kind, inner)
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
