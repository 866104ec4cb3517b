package resource

import (
	"encoding/hex"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// A client may have a gathered RouteConfiguration in one of two forms. The whole form contains the virtual hosts. The split form says that the
// client gets them as resources of their own (VHDS): Head is the RouteConfiguration, and Host a virtual host. The bytes of a virtual host
// behind its name are the same in both forms and are not copied.

// splitMark begins the versions of RouteConfigurations in the split form. A client that connects again says which form it has.
const splitMark = "h"

// noHost is the name of a virtual host that never exists.
const noHost = "__none"

// Head is the RouteConfiguration in the split form, without its virtual hosts. The resource must be gathered. Two heads are equal if the
// headers are: the virtual hosts do not count.
func (r *Resource) Head() *Resource {
	head := &Resource{name: r.name, typ: Route, mark: splitMark}
	body := splitHeader(r.head[r.body:])
	head.hash = headHash(body)
	hex.Encode(head.frame(written(body), 0), head.hash[:])
	return head
}

func headHash(body []byte) omap.Hash {
	return omap.Sum([]byte(Route.URL()), []byte("\x00split\x00"), body)
}

// splitHeader is an encoded header with the field that makes the client fetch the virtual hosts. Its content must never change: Envoy would
// subscribe once more.
func splitHeader(header []byte) []byte {
	vhds := &routev3.RouteConfiguration{Vhds: &routev3.Vhds{ConfigSource: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}}}
	b := make([]byte, 0, len(header)+16)
	return encoded{"vhds", vhds, sizeOf(vhds)}.appendTo(append(b, header...))
}

// IsSplitVersion reports whether a version, which a client sent, belongs to the split form.
func IsSplitVersion(v []byte) bool { return strings.HasPrefix(string(v), splitMark) }

// IsHeadVersion reports whether v is the version of the resource's Head.
func (r *Resource) IsHeadVersion(v []byte) bool {
	hash := r.HeadHash()
	return string(v) == splitMark+hex.EncodeToString(hash[:])
}

// HeadHash is the hash of the resource's Head.
func (r *Resource) HeadHash() omap.Hash { return headHash(splitHeader(r.head[r.body:])) }

// HasHeader reports whether the header is known.
func (r *Resource) HasHeader() bool { return len(r.head) > r.body }

// WithoutHeader is the RouteConfiguration with a header that the server does not know, because the client has another version of it.
func (r *Resource) WithoutHeader() *Resource {
	c := &Resource{name: r.name, typ: r.typ}
	c.gather([]byte{}, r.pieces)
	return c
}

// UnknownPiece is a virtual host known only by name, as UnknownContent is a resource known only by name.
func UnknownPiece(name string) *Piece {
	return &Piece{name: name, hash: omap.Sum([]byte("gone"))}
}

// Host is the virtual host as a resource of its own, in the split form of a route configuration. The piece must have content.
func (p *Piece) Host(route string) *Resource {
	r := &Resource{name: HostName(route, p.name), typ: VirtualHost, hash: p.hash, tail: p.frame[p.rest:]}
	// Envoy removes a virtual host by its name, which must therefore be the name of the resource.
	hex.Encode(r.frame(written(appendString(nil, fieldHostName, r.name)), len(r.tail)), r.hash[:])
	return r
}

// HasContent reports whether more is known of the virtual host than its name.
func (p *Piece) HasContent() bool { return len(p.frame) > 0 }

// IsVersion reports whether v, which a client sent, is the version of the virtual host as a resource of its own.
func (p *Piece) IsVersion(v []byte) bool { return string(v) == hex.EncodeToString(p.hash[:]) }

// HostName is the name of a virtual host as a resource of its own. Envoy takes the part before the last slash for the name of the route
// configuration, so the name of the virtual host itself is written without slashes.
func HostName(route, piece string) string {
	if strings.ContainsAny(piece, "/%") {
		piece = strings.NewReplacer("%", "%25", "/", "%2F").Replace(piece)
	}
	return route + "/" + piece
}

// SplitHostName is the inverse of HostName.
func SplitHostName(name string) (route, piece string) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name
	}
	route, piece = name[:i], name[i+1:]
	if strings.Contains(piece, "%") {
		piece = strings.NewReplacer("%2F", "/", "%25", "%").Replace(piece)
	}
	return route, piece
}

// NoHost is a name to remove from a client that has a route configuration without virtual hosts. Envoy waits for the virtual hosts until a
// response names one, and a removal is enough.
func NoHost(route string) string { return HostName(route, noHost) }
