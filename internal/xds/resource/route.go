package resource

import (
	"encoding/hex"
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// fieldVirtualHosts is RouteConfiguration.virtual_hosts.
const fieldVirtualHosts = 2

// fieldHostName is VirtualHost.name, and fieldDomains VirtualHost.domains.
const fieldHostName, fieldDomains = 1, 2

// Piece is one virtual host of a gathered RouteConfiguration, encoded once with its tag and length.
type Piece struct {
	name  string
	hash  omap.Hash
	frame []byte
	// rest is the offset in frame behind the name of the virtual host, which is its first field.
	rest   int
	refs   []string
	hidden bool
}

// NewPiece encodes vhost. refs are the names of the clusters it routes to. It panics as New does.
func NewPiece(name string, vhost proto.Message, refs []string) *Piece {
	n := sizeOf(vhost)
	frame := appendLen(make([]byte, 0, sizeOfBytes(n)), fieldVirtualHosts, n)
	at := len(frame)
	frame = encoded{name, vhost, n}.appendTo(frame)
	sorted := slices.Compact(slices.Sorted(slices.Values(refs)))
	return &Piece{name: name, hash: omap.Sum([]byte("piece\x00"), frame[at:]), frame: frame, rest: at + nameLen(frame[at:]), refs: sorted}
}

// nameLen is the length of the field with the name at the beginning of an encoded virtual host; 0 if it has no name.
func nameLen(body []byte) int {
	field, kind, n := protowire.ConsumeTag(body)
	if n < 0 || field != fieldHostName || kind != protowire.BytesType {
		return 0
	}
	return n + protowire.ConsumeFieldValue(field, kind, body[n:])
}

// PieceOf encodes a virtual host and finds the clusters it routes to. It panics as New does.
func PieceOf(name string, vhost *routev3.VirtualHost) *Piece {
	return NewPiece(name, vhost, distinct(routedTo(vhost)))
}

func appendPiece(b []byte, p *Piece) []byte { return append(b, p.frame...) }

// HidePiece is the entry of an upper layer that hides the piece of a lower one.
func HidePiece(name string) *Piece {
	return &Piece{name: name, hash: hiddenHash(), hidden: true}
}

// Name is the piece's name, unique in its route configuration.
func (p *Piece) Name() string { return p.name }

// OutputName is Name: pieces are outputs of collections.
func (p *Piece) OutputName() string { return p.name }

// ContentHash is the hash of the piece's content.
func (p *Piece) ContentHash() omap.Hash { return p.hash }

// Size is the number of bytes the piece adds to its route configuration.
func (p *Piece) Size() int { return len(p.frame) }

// Hidden reports whether this is an entry that hides a lower layer's piece.
func (p *Piece) Hidden() bool { return p.hidden }

// Refs are the names of the clusters the piece routes to, sorted.
func (p *Piece) Refs() []string { return p.refs }

// Domains are the domains of the virtual host, decoded from its encoding. A nil piece has none.
func (p *Piece) Domains() (list []string) {
	if p == nil {
		return nil
	}
	_, _, n := protowire.ConsumeTag(p.frame)
	if n < 0 {
		return nil // A hidden entry has no encoding.
	}
	body, _ := protowire.ConsumeBytes(p.frame[n:])
	for len(body) > 0 {
		field, kind, n := protowire.ConsumeTag(body)
		size := protowire.ConsumeFieldValue(field, kind, body[max(n, 0):])
		if n < 0 || size < 0 {
			return list
		}
		if field == fieldDomains {
			domain, _ := protowire.ConsumeString(body[n:])
			list = append(list, domain)
		}
		body = body[n+size:]
	}
	return list
}

// Proto decodes the virtual host. It is meant for errors, debug pages and tests.
func (p *Piece) Proto() (proto.Message, error) {
	_, _, n := protowire.ConsumeTag(p.frame)
	if n < 0 {
		return nil, fmt.Errorf("the virtual host %q has no content", p.name)
	}
	body, _ := protowire.ConsumeBytes(p.frame[n:])
	vhost := &routev3.VirtualHost{}
	if err := proto.Unmarshal(body, vhost); err != nil {
		return nil, fmt.Errorf("decode the virtual host %q: %w", p.name, err)
	}
	return vhost, nil
}

// NewRoute makes a RouteConfiguration of pieces and a header, which is everything but the virtual hosts. It does not copy the
// pieces: they are sent one after the other behind the header. The version combines the header with the Merkle hash of the
// pieces, so a changed piece costs only one hash over two hashes. NewRoute panics as New does, and also if the header has
// virtual hosts of its own, because they would be sent twice.
func NewRoute(name string, header proto.Message, pieces omap.Map[omap.Name, *Piece]) *Resource {
	fields := header.ProtoReflect()
	if f := fields.Descriptor().Fields().ByNumber(fieldVirtualHosts); f != nil && fields.Has(f) {
		panic(fmt.Errorf("encode RouteConfiguration %q: its header holds virtual hosts; hand them over as pieces", name))
	}
	r := &Resource{name: name, typ: Route}
	r.gather(encoded{name, header, sizeOf(header)}.appendTo(nil), pieces)
	return r
}

// gather frames a header and pieces as one resource.
func (r *Resource) gather(header []byte, pieces omap.Map[omap.Name, *Piece]) {
	sum := pieces.Hash()
	r.hash = omap.Sum([]byte(Route.URL()), header, []byte("\x00pieces\x00"), sum[:])
	r.pieces = pieces
	hex.Encode(r.frame(written(header), pieces.Size()), r.hash[:])
}

// Pieces are the virtual hosts of a gathered RouteConfiguration; empty for every other resource.
func (r *Resource) Pieces() omap.Map[omap.Name, *Piece] { return r.pieces }

// WithPieces is the RouteConfiguration with the same header and other pieces. The resource must be gathered.
func (r *Resource) WithPieces(pieces omap.Map[omap.Name, *Piece]) *Resource {
	c := &Resource{name: r.name, typ: r.typ}
	c.gather(r.head[r.body:], pieces)
	return c
}

// Header decodes a gathered RouteConfiguration without its virtual hosts.
func (r *Resource) Header() (*routev3.RouteConfiguration, error) {
	m := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.head[r.body:], m); err != nil {
		return nil, fmt.Errorf("decode the header of the route configuration %q: %w", r.name, err)
	}
	return m, nil
}

// SameHeader reports whether two gathered RouteConfigurations have equal headers.
func (r *Resource) SameHeader(o *Resource) bool {
	return string(r.head[r.body:]) == string(o.head[o.body:])
}
