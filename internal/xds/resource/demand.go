package resource

import (
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// A client may get the virtual hosts of a route configuration on demand. It is then sent DemandHead, and a virtual host for each authority (the Host header of
// a request, in lower case and with its port) that it asks for. The virtual host is for this authority alone. So no other virtual host at the
// client answers for an authority that it has not asked for: neither a pattern, where a host of its own exists, nor a catch-all.

// OnDemandRoute reports whether the virtual hosts of a route configuration may be got on demand: of one for a port, which is named by its number.
func OnDemandRoute(name string) bool {
	return name != "" && strings.Trim(name, "0123456789") == ""
}

// SplitDemand divides the name of a virtual host on demand; ok is false if it is the name of another one.
func SplitDemand(name string) (route, authority string, ok bool) {
	route, authority, ok = strings.Cut(name, "/")
	return route, authority, ok && OnDemandRoute(route) && authority != "" && !strings.Contains(authority, "/")
}

// fieldIgnorePort is RouteConfiguration.ignore_port_in_host_matching.
const fieldIgnorePort = 14

// DemandHead is the RouteConfiguration without virtual hosts, for a client that gets them on demand. Requests with and without a port in the Host header are
// different, because the client asks for both and the domains of the answers must differ. The resource must be gathered.
func (r *Resource) DemandHead() *Resource {
	head := &Resource{name: r.name, typ: Route, mark: splitMark}
	body := splitHeader(r.head[r.body:])
	body = protowire.AppendVarint(protowire.AppendTag(body, fieldIgnorePort, protowire.VarintType), 0) // the last one counts
	head.hash = headHash(body)
	hex.Encode(head.frame(written(body), 0), head.hash[:])
	return head
}

// Demanded is the virtual host as the answer to a demand for one authority, which is its only domain. The piece must have content.
func (p *Piece) Demanded(route, authority string) *Resource {
	r := &Resource{name: route + "/" + authority, typ: VirtualHost, clusters: p.refs}
	rest := p.frame[p.rest:]
	for len(rest) > 0 {
		field, kind, n := protowire.ConsumeTag(rest)
		size := protowire.ConsumeFieldValue(field, kind, rest[max(n, 0):])
		if field != fieldDomains || n < 0 || size < 0 {
			break
		}
		rest = rest[n+size:]
	}
	body := appendString(appendString(nil, fieldHostName, r.name), fieldDomains, authority)
	r.hash = omap.Sum([]byte(VirtualHost.URL()), body, rest)
	r.tail = rest
	hex.Encode(r.frame(written(body), len(rest)), r.hash[:])
	return r
}

// fieldAliases is envoy.service.discovery.v3.Resource.aliases.
const fieldAliases = 4

// AppendAbsent appends an element of DeltaDiscoveryResponse.resources that ends a demand for a virtual host without an answer: the resource is
// empty, and its alias is the name.
func AppendAbsent(b []byte, name string) []byte {
	body := appendString(appendString(appendString(nil, fieldVersion, "0"), fieldName, name), fieldAliases, name)
	return append(appendLen(b, fieldResources, len(body)), body...)
}

// Mentioned returns the text fields with a prefix, anywhere in the resource: the names of clusters, wherever a filter may have one. The resource must not be
// gathered. Bytes that happen to look like such a field yield a name that nothing has.
func (r *Resource) Mentioned(prefix string) []string {
	if r.hidden {
		return nil
	}
	return distinct(mentioned(nil, r.head[r.body:], prefix, 0))
}

// maxNesting is deeper than the messages in a listener are nested.
const maxNesting = 40

func mentioned(list []string, message []byte, prefix string, depth int) []string {
	found := list
	for rest := message; len(rest) > 0; {
		_, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return list // It is no message.
		}
		rest = rest[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(1, kind, rest); n < 0 {
				return list
			}
			rest = rest[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return list
		}
		rest = rest[n:]
		switch {
		case strings.HasPrefix(string(value), prefix):
			found = append(found, string(value))
		case depth < maxNesting && len(value) > len(prefix):
			found = mentioned(found, value, prefix, depth+1)
		}
	}
	return found
}
