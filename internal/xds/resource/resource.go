package resource

import (
	"encoding/hex"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/nds"
)

// Field numbers of envoy.service.discovery.v3.Resource and google.protobuf.Any. That resources is field 2 of both
// response messages, and the Any field 2 of Resource, is what lets one buffer serve both protocol variants.
const (
	fieldResources = 2

	fieldVersion = 1
	fieldAny     = 2
	fieldName    = 3

	fieldURL   = 1
	fieldValue = 2
)

// Resource is one xDS resource, encoded once.
//
// head is the delta frame: tag and length of DeltaDiscoveryResponse.resources, then version, name and, last, the Any. The part
// from the Any's tag on, head[any:], is also the frame of DiscoveryResponse.resources. If the resource is gathered, its
// pieces continue the frame, and the lengths in head include their bytes.
type Resource struct {
	name string
	hash omap.Hash
	head []byte
	// any and body are offsets in head: of the Any's tag, and of the message itself.
	any, body int
	typ       Type
	hidden    bool
	// eds is the name of the assignment that a cluster fetches by EDS; empty if it fetches none.
	eds string
	// refs are the route configurations that a listener fetches by RDS.
	refs []string
	// clusters are the clusters that a listener itself refers to, or a virtual host on demand.
	clusters []string
	// pieces are the virtual hosts of a gathered RouteConfiguration.
	pieces omap.Map[omap.Name, *Piece]
	// tail continues head if a part of the content is shared with another resource: of a virtual host, everything behind its name.
	tail []byte
	// mark begins the version; empty for most resources.
	mark string
}

// New encodes msg as the resource name of type t. The encoding is deterministic. It panics if msg cannot be encoded, for
// example because a string is not UTF-8. Translators run in cells, which recover, keep their last value and report it.
func New(t Type, name string, msg proto.Message) *Resource {
	r := &Resource{name: name, typ: t}
	switch m := msg.(type) {
	case *clusterv3.Cluster:
		r.eds = edsName(m)
	default:
		if t == Listener {
			r.refs, r.clusters = listenerRefs(msg)
		}
	}
	r.seal(encoded{name, msg, sizeOf(msg)})
	return r
}

// Encoded makes a resource of an encoded message. Its type must be one that refers to no other resource.
func Encoded(t Type, name string, body []byte) *Resource {
	r := &Resource{name: name, typ: t}
	r.seal(written(body))
	return r
}

// Hide is the entry of an upper layer that hides the resource of a lower one.
func Hide(name string) *Resource {
	return &Resource{name: name, hidden: true, hash: hiddenHash()}
}

// UnknownContent is a resource known only by name: a client said that it has it, in a version that the server
// does not know. It has no bytes and is never sent. It only serves as the old resource in a Diff.
func UnknownContent(name string) *Resource {
	return &Resource{name: name, hash: omap.Sum([]byte("gone"))}
}

// hiddenHash differs from the hash of every content, because those begin with a type URL.
func hiddenHash() omap.Hash { return omap.Sum([]byte("hidden")) }

// body is what a frame is built around.
type body interface {
	size() int
	appendTo(b []byte) []byte
}

// encoded is a message. Its encoding is deterministic.
type encoded struct {
	name string
	msg  proto.Message
	n    int // sizeOf(msg)
}

func sizeOf(msg proto.Message) int { return proto.MarshalOptions{Deterministic: true}.Size(msg) }

func (e encoded) size() int { return e.n }

func (e encoded) appendTo(b []byte) []byte {
	out, err := proto.MarshalOptions{Deterministic: true, UseCachedSize: true}.MarshalAppend(b, e.msg)
	if err != nil {
		panic(fmt.Errorf("encode %s %q: %w", e.msg.ProtoReflect().Descriptor().Name(), e.name, err))
	}
	return out
}

// written is a body that is encoded already.
type written []byte

func (w written) size() int                { return len(w) }
func (w written) appendTo(b []byte) []byte { return append(b, w...) }

// seal encodes a whole resource and computes its version.
func (r *Resource) seal(of body) {
	version := r.frame(of, 0)
	r.hash = omap.Sum([]byte(r.typ.URL()), r.head[r.body:])
	hex.Encode(version, r.hash[:])
}

// frame builds head around body. The lengths in head include tail bytes that follow the body elsewhere. It returns the slice
// into which the caller must write the version, which is a hash of the body.
func (r *Resource) frame(of body, tail int) (version []byte) {
	url := r.typ.URL()
	value := of.size() + tail
	anyLen := sizeOfBytes(len(url)) + sizeOfBytes(value)
	length := len(r.mark) + hex.EncodedLen(len(r.hash))
	inner := sizeOfBytes(length) + sizeOfBytes(len(r.name)) + sizeOfBytes(anyLen)
	// The body is encoded into one allocation of the exact size, because resources are most of the heap.
	b := make([]byte, 0, sizeOfBytes(inner)-tail)
	b = appendLen(b, fieldResources, inner)
	b = append(appendLen(b, fieldVersion, length), r.mark...)
	at := len(b)
	b = append(b, make([]byte, hex.EncodedLen(len(r.hash)))...)
	named := len(b)
	b = appendString(b, fieldName, r.name)
	r.any = len(b)
	b = appendLen(b, fieldAny, anyLen)
	b = appendString(b, fieldURL, url)
	b = appendLen(b, fieldValue, value)
	r.body = len(b)
	r.head = of.appendTo(b)
	return r.head[at:named]
}

// appendLen appends the tag and the length of a length-delimited field.
func appendLen(b []byte, field protowire.Number, n int) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n))
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return append(appendLen(b, field, len(s)), s...)
}

// sizeOfBytes is the size of a length-delimited field with n bytes whose field number is below 16.
func sizeOfBytes(n int) int { return 1 + protowire.SizeBytes(n) }

// Name is the resource's name.
func (r *Resource) Name() string { return r.name }

// OutputName is Name: resources are outputs of collections.
func (r *Resource) OutputName() string { return r.name }

// Type is the resource's type.
func (r *Resource) Type() Type { return r.typ }

// ContentHash is the hash of the resource's content.
func (r *Resource) ContentHash() omap.Hash { return r.hash }

// Version is the resource's version on the wire: its content hash in hex, behind the mark of a split route configuration.
func (r *Resource) Version() string { return r.mark + hex.EncodeToString(r.hash[:]) }

// Hidden reports whether this is an entry that hides a lower layer's resource.
func (r *Resource) Hidden() bool { return r.hidden }

// Size is the number of bytes the resource takes in a delta response.
func (r *Resource) Size() int { return len(r.head) + len(r.tail) + r.pieces.Size() }

// SizeSotW is the number of bytes the resource takes in a State-of-the-World response.
func (r *Resource) SizeSotW() int { return r.Size() - r.any }

// EDS is the name of the assignment that a cluster fetches by EDS; ok is false if the resource fetches none.
func (r *Resource) EDS() (name string, ok bool) { return r.eds, r.eds != "" }

// Refs are the names of the route configurations that a listener fetches by RDS, sorted. What a route configuration refers
// to is known by its pieces.
func (r *Resource) Refs() []string { return r.refs }

// Clusters are the names of the clusters that a listener itself refers to, in TCP proxies and inline routes, or a virtual host on demand, sorted.
func (r *Resource) Clusters() []string { return r.clusters }

// AppendDelta appends the slices of the delta frame: an element of DeltaDiscoveryResponse.resources.
func (r *Resource) AppendDelta(dst [][]byte) [][]byte { return r.appendFrom(dst, 0) }

// AppendSotW appends the slices of the State-of-the-World frame: an element of DiscoveryResponse.resources.
func (r *Resource) AppendSotW(dst [][]byte) [][]byte { return r.appendFrom(dst, r.any) }

func (r *Resource) appendFrom(dst [][]byte, from int) [][]byte {
	if len(r.head) > from {
		dst = append(dst, r.head[from:])
	}
	if len(r.tail) > 0 {
		dst = append(dst, r.tail)
	}
	if r.pieces.Len() == 0 {
		return dst
	}
	for block := range omap.Blocks(r.pieces, appendPiece) {
		dst = append(dst, block)
	}
	return dst
}

// Proto decodes the resource. It is meant for debug pages and tests.
func (r *Resource) Proto() (proto.Message, error) {
	if r.typ == NameTable {
		return nds.Message(r.head[r.body:])
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(r.typ.URL())
	if err != nil {
		return nil, fmt.Errorf("decode %s %q: %w", r.typ, r.name, err)
	}
	var body []byte
	for _, part := range r.appendFrom(nil, r.body) {
		body = append(body, part...)
	}
	msg := kind.New().Interface()
	if err := proto.Unmarshal(body, msg); err != nil {
		return nil, fmt.Errorf("decode %s %q: %w", r.typ, r.name, err)
	}
	return msg, nil
}

// IsVersion reports whether v, which a client sent, is the resource's version.
func (r *Resource) IsVersion(v []byte) bool {
	var hash omap.Hash
	if len(v) != hex.EncodedLen(len(hash)) {
		return false
	}
	// Upper case digits decode to the same hash, but a client only repeats versions that it was sent.
	_, err := hex.Decode(hash[:], v)
	return err == nil && hash == r.hash
}
