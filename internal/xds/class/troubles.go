package class

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxApart is how many resources with which a proxy has the same kind of trouble have a problem each. More of them have one together, so that
// no proxy fills the list of problems with names that it has invented.
const maxApart = 20

// askerTrouble is a kind of trouble that a proxy has with resources of a type, and perhaps others with the same resource.
type askerTrouble struct {
	proxy string
	typ   uint8
	// rejected is true if the proxy has rejected the resource, and denied if it may not have it.
	rejected, denied bool
}

// Compare orders by proxy, then by type, then by kind.
func (k askerTrouble) Compare(o askerTrouble) int {
	return cmp.Or(strings.Compare(k.proxy, o.proxy), cmp.Compare(k.typ, o.typ), cmp.Compare(k.kind(), o.kind()))
}

// AppendTo appends an unambiguous encoding.
func (k askerTrouble) AppendTo(b []byte) []byte {
	return append(append(b, k.typ, k.kind()), k.proxy...)
}

func (k askerTrouble) kind() (n byte) {
	if k.rejected {
		n = 1
	}
	if k.denied {
		n += 2
	}
	return n
}

// troubled is a resource with which a proxy has trouble, the reason in the problem about it, and the object that names it, if that is known.
type troubled struct {
	resource, reason string
	object           api.Key
}

// Compare orders by resource, then by reason, then by object.
func (t troubled) Compare(o troubled) int {
	return cmp.Or(strings.Compare(t.resource, o.resource), strings.Compare(t.reason, o.reason), t.object.Compare(o.object))
}

// AppendTo appends an unambiguous encoding.
func (t troubled) AppendTo(b []byte) []byte {
	return t.object.AppendTo(append(append(append(append(b, t.resource...), 0), t.reason...), 0))
}

// trouble is what a proxy has with a resource.
type trouble struct {
	askerTrouble
	resource, reason string
	object           api.Key
}

// OutputName implements query.Output.
func (t trouble) OutputName() string {
	return string(t.object.AppendTo(append(t.askerTrouble.AppendTo([]byte(t.resource+"\x00")), 0))) + t.reason
}

// ContentHash implements omap.Value.
func (t trouble) ContentHash() omap.Hash { return omap.Sum([]byte(t.OutputName())) }

// Size implements omap.Value.
func (t trouble) Size() int { return len(t.resource) + len(t.reason) }

// problems are those about the resources with which a proxy has one kind of trouble.
func (k askerTrouble) problems(with omap.Map[troubled, omap.Unit]) (list []api.Problem) {
	typ, code := resource.Type(k.typ), code.Code("resource-missing")
	if k.rejected {
		code = "proxy-rejected"
	}
	if with.Len() <= maxApart {
		for t := range with.All() {
			list = append(list, api.Problem{Object: t.object, Severity: api.Warning, Code: code, Field: fmt.Sprintf("%v %q", typ, t.resource), Reason: t.reason})
		}
		return list
	}
	const examples = 3
	var some []string
	first := ""
	for t := range with.All() {
		if first == "" {
			first = t.reason
		}
		if some = append(some, strconv.Quote(t.resource)); len(some) == examples {
			break
		}
	}
	does := "asks for %d resources of this type that it does not get"
	if k.rejected {
		does = "has rejected %d resources of this type"
	}
	return []api.Problem{{Severity: api.Warning, Code: code, Field: fmt.Sprintf("%v of %s", typ, proxy.NameOf(k.proxy)), Reason: fmt.Sprintf("proxy %s "+does+": %s and others; of the first: %s",
		k.proxy, with.Len(), strings.Join(some, ", "), first)}}
}
