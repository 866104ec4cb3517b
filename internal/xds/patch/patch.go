// Package patch applies the patches of EnvoyFilters to messages that are ready to be sent.
//
// It owns which part of a message a patch is about, what each operation does to it, and what becomes of a patch that breaks the message: it
// is left out there, and the rest is applied. If such a patch is about access, the message then denies. Which patches apply to which proxies
// is decided elsewhere.
//
// Invariants: the functions are pure, and change no message that they are given. A patched message passes the validation that was generated
// for it and for each configuration of an extension in it, unless the message did not pass before.
//
// The package starts no goroutines.
package patch

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rules/envoy"
	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// Ref names a patch: its object, and its position there.
type Ref struct {
	Filter api.Key
	Index  int
}

// Compare orders by object, then by position.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(r.Filter.Compare(o.Filter), cmp.Compare(r.Index, o.Index))
}

// AppendTo appends an unambiguous form.
func (r Ref) AppendTo(b []byte) []byte {
	return binary.AppendVarint(r.Filter.AppendTo(b), int64(r.Index))
}

// Field is the path of the patch in its object.
func (r Ref) Field() string { return fmt.Sprintf("spec.configPatches[%d]", r.Index) }

// Patch is one patch, decoded. It is immutable.
type Patch struct {
	Ref
	// ApplyTo says which objects of Envoy the patch is about, and Context in which direction.
	ApplyTo networking.EnvoyFilter_ApplyTo
	Context networking.EnvoyFilter_PatchContext
	// Flaw says why the patch is left out everywhere; empty if it is not.
	Flaw string
	// Access is true if the patch is about access. A message from which it is left out must deny.
	Access bool

	op    networking.EnvoyFilter_Patch_Operation
	class networking.EnvoyFilter_Patch_FilterClass
	match *networking.EnvoyFilter_EnvoyConfigObjectMatch
	value proto.Message
	hash  omap.Hash
}

// New decodes a patch.
func New(ref Ref, spec *networking.EnvoyFilter_EnvoyConfigObjectPatch) *Patch {
	p := Undecoded(ref, spec)
	p.Access = isAboutAccess(spec)
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	p.hash = omap.Sum(ref.AppendTo(nil), text)
	value := spec.GetPatch().GetValue()
	switch {
	case err != nil:
		p.Flaw = fmt.Sprintf("cannot be encoded: %v", err)
	case p.op == networking.EnvoyFilter_Patch_REMOVE:
	case value == nil:
		p.Flaw = fmt.Sprintf("has no value for the operation %s", p.op)
	default:
		p.decode(spec, envoy.TypesIn(value))
	}
	return p
}

// Undecoded returns a patch without its value, which is enough to know its subject.
func Undecoded(ref Ref, spec *networking.EnvoyFilter_EnvoyConfigObjectPatch) *Patch {
	p := &Patch{
		Ref: ref, ApplyTo: spec.GetApplyTo(), Context: spec.GetMatch().GetContext(), match: spec.GetMatch(),
		op: spec.GetPatch().GetOperation(), class: spec.GetPatch().GetFilterClass(),
	}
	if inserts(p.op) && !isOrdered(p.ApplyTo) {
		p.op = networking.EnvoyFilter_Patch_ADD
	}
	return p
}

func (p *Patch) decode(spec *networking.EnvoyFilter_EnvoyConfigObjectPatch, types []string) {
	for _, t := range types {
		if advice, foreign := envoy.Foreign(t); foreign {
			p.Flaw = fmt.Sprintf("needs %s, which only Istio's own proxy has; %s", t, advice)
			return
		}
	}
	m, err := envoy.Decode(p.ApplyTo.String(), spec.GetPatch().GetValue())
	if err != nil {
		p.Flaw = "the value " + err.Error()
		return
	}
	p.value = m
	if p.op == networking.EnvoyFilter_Patch_ADD && p.ApplyTo == networking.EnvoyFilter_LISTENER && isVirtual(nameOf(m)) {
		p.Flaw = fmt.Sprintf("the listener %q is the control plane's: it can be merged into or removed, and not added", nameOf(m))
	}
}

// nameOf returns the name of an object of Envoy.
func nameOf(m proto.Message) string {
	if n, ok := m.(interface{ GetName() string }); ok {
		return n.GetName()
	}
	return ""
}

// ContentHash identifies the content of the patch, with its name.
func (p *Patch) ContentHash() omap.Hash { return p.hash }

// Adds reports whether the patch adds an object of its own to the objects of a type.
func (p *Patch) Adds() bool { return p.op == networking.EnvoyFilter_Patch_ADD }

// RemovesAccess reports whether the patch takes a filter away that decides about access.
func (p *Patch) RemovesAccess() bool {
	return p.Access && (p.op == networking.EnvoyFilter_Patch_REMOVE || p.op == networking.EnvoyFilter_Patch_REPLACE)
}

// In reports whether the patch is about messages of a direction. An added cluster or listener for any direction is added once, for outbound.
func (p *Patch) In(context networking.EnvoyFilter_PatchContext) bool {
	if p.Context != networking.EnvoyFilter_ANY {
		return p.Context == context
	}
	whole := p.ApplyTo == networking.EnvoyFilter_LISTENER || p.ApplyTo == networking.EnvoyFilter_CLUSTER
	return !(whole && p.Adds() && context == networking.EnvoyFilter_SIDECAR_INBOUND)
}

// Anchor returns the name of the filter that the patch is placed by or changes; empty if it names none.
func (p *Patch) Anchor() string {
	f := p.match.GetListener().GetFilterChain().GetFilter()
	if sub := f.GetSubFilter().GetName(); sub != "" {
		return sub
	}
	return f.GetName()
}

// Match describes what the patch selects, for people.
func (p *Patch) Match() string {
	b, err := json.Marshal(p.match)
	if err != nil || p.match == nil {
		return "everything"
	}
	return string(b)
}

// inserts reports whether an operation puts an object at a position.
func inserts(op networking.EnvoyFilter_Patch_Operation) bool {
	switch op {
	case networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_AFTER, networking.EnvoyFilter_Patch_INSERT_FIRST:
		return true
	}
	return false
}

// merges reports whether an operation merges the value into objects.
func merges(op networking.EnvoyFilter_Patch_Operation) bool {
	return op == networking.EnvoyFilter_Patch_MERGE || op == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
}

// IsWhole reports whether objects are resources or pieces that proxies are sent, so that a patch can add one.
func IsWhole(a networking.EnvoyFilter_ApplyTo) bool {
	switch a {
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_EXTENSION_CONFIG:
		return true
	}
	return false
}

// isOrdered reports whether objects are in lists whose order matters.
func isOrdered(a networking.EnvoyFilter_ApplyTo) bool {
	switch a {
	case networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER, networking.EnvoyFilter_HTTP_ROUTE:
		return true
	}
	return false
}

// isAboutAccess reports whether a patch adds, changes or removes what decides about access.
func isAboutAccess(spec *networking.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	f := spec.GetMatch().GetListener().GetFilterChain().GetFilter()
	names := append(envoy.TypesIn(spec.GetPatch().GetValue()), spec.GetPatch().GetValue().GetFields()["name"].GetStringValue())
	if !inserts(spec.GetPatch().GetOperation()) { // an insertion names a filter only as a neighbour
		names = append(names, f.GetName(), f.GetSubFilter().GetName())
	}
	return slices.ContainsFunc(names, decidesAccess)
}

// decidesAccess reports whether a filter, or the message of its configuration, decides about access.
func decidesAccess(name string) bool {
	for _, part := range []string{".rbac", ".ext_authz", ".jwt_authn", ".basic_auth", ".api_key_auth", ".oauth2", ".client_ssl_auth"} {
		if at := strings.Index(name, part); at >= 0 && strings.HasPrefix(name, "envoy.") {
			rest := name[at+len(part):]
			if rest == "" || rest[0] == '.' {
				return true
			}
		}
	}
	return false
}
