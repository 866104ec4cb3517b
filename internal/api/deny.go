package api

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// A refused access policy without a known earlier version must not leave its workloads open. A substitute takes its place: an object that
// denies everything to the workloads of its namespace that have the labels of its selector. Labels that cannot be read are left out, so
// that the substitute never selects fewer workloads than the policy.

// GuardsAccess reports whether objects of the kind decide about access to workloads. No part of such an object is ever ignored.
func (k Key) GuardsAccess() bool {
	return k.Kind == KindAuthorizationPolicy || k.Kind == KindPeerAuthentication || k.Kind == KindRequestAuthentication
}

// selection holds the readable parts of a refused policy.
type selection struct {
	labels map[string]string
	// targeted is true if the policy is for gateways and waypoints, and for no sidecar. gateways are the targets that are gateways.
	targeted bool
	gateways []*typev1beta1.PolicyTargetReference
	// idle is true if the policy would restrict nothing even if it were accepted: it has no rules, and its action is not ALLOW.
	idle bool
	// tokens are the rules of a RequestAuthentication.
	tokens []*security.JWTRule
}

// selectionOf returns the selection of a refused spec that could be read.
func selectionOf(spec proto.Message) selection {
	switch s := spec.(type) {
	case *security.AuthorizationPolicy:
		idle := len(s.Rules) == 0 && s.Action != security.AuthorizationPolicy_ALLOW
		return targetsOf(selection{labels: s.GetSelector().GetMatchLabels(), idle: idle}, s.Selector != nil, s.TargetRef, s.TargetRefs)
	case *security.RequestAuthentication:
		return targetsOf(selection{labels: s.GetSelector().GetMatchLabels(), tokens: s.JwtRules}, s.Selector != nil, s.TargetRef, s.TargetRefs)
	case *security.PeerAuthentication:
		return selection{labels: s.GetSelector().GetMatchLabels()}
	}
	return selection{}
}

// targetsOf adds the targets of a policy. With a selector beside them, it may be for other workloads, too.
func targetsOf(s selection, selects bool, one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) selection {
	if one != nil {
		all = append([]*typev1beta1.PolicyTargetReference{one}, all...)
	}
	s.targeted = !selects && len(all) > 0
	for _, target := range all {
		s.addTarget(target.GetKind(), target.GetName())
	}
	return s
}

// addTarget adds a target if it is a gateway.
func (s *selection) addTarget(kind, name string) {
	if s.targeted && kind == "Gateway" && syntax.Name(name) == "" {
		s.gateways = append(s.gateways, &typev1beta1.PolicyTargetReference{Group: "gateway.networking.k8s.io", Kind: kind, Name: name})
	}
}

// selectionIn returns the selection of a spec that could not be read as a whole.
func selectionIn(spec *document.Value) selection {
	var s selection
	selector := spec.Get("selector")
	one, many := spec.Get("targetRef"), spec.Get("targetRefs")
	s.targeted = countOf(spec, "selector") == 0 && (one != nil && len(one.Members) > 0 || many != nil && len(many.Items) > 0)
	for _, target := range targetsIn(one, many) {
		s.addTarget(scalarOf(target, "kind"), scalarOf(target, "name"))
	}
	if labels := selector.Get("matchLabels"); labels != nil && countOf(spec, "selector") == 1 && countOf(selector, "matchLabels") == 1 {
		s.labels = map[string]string{}
		for _, m := range labels.Members {
			if m.Value.Kind == document.String && countOf(labels, m.Key) == 1 {
				s.labels[m.Key] = m.Value.Scalar
			}
		}
	}
	if list := spec.Get("jwtRules"); list != nil {
		for _, item := range list.Items {
			s.tokens = append(s.tokens, readablePart(item))
		}
	}
	return s
}

// targetsIn returns the targets of a policy that could not be read as a whole.
func targetsIn(one, many *document.Value) []*document.Value {
	if many == nil {
		return []*document.Value{one}
	}
	return append([]*document.Value{one}, many.Items...)
}

// scalarOf returns the text of a field; empty if it has none.
func scalarOf(v *document.Value, field string) string {
	if f := v.Get(field); f != nil && f.Kind == document.String {
		return f.Scalar
	}
	return ""
}

// readablePart returns the fields of a rule for tokens that can be read, each alone.
func readablePart(item *document.Value) *security.JWTRule {
	whole := &security.JWTRule{}
	for _, m := range item.Members {
		part := &security.JWTRule{}
		alone := &document.Value{Kind: document.Mapping, Line: item.Line, Members: []document.Member{m}}
		failed := slices.ContainsFunc(document.Read(part, alone, nil, document.Options{Lenient: true}), func(f document.Finding) bool { return !f.Warning })
		if !failed {
			proto.Merge(whole, part)
		}
	}
	return whole
}

// countOf returns how many members of a mapping have a name.
func countOf(v *document.Value, key string) (n int) {
	if v == nil {
		return 0
	}
	for _, m := range v.Members {
		if m.Key == key {
			n++
		}
	}
	return n
}

// denying returns the substitute for the policy of an envelope; nil if it needs none.
func denying(e *envelope, at Position, s selection) *Object {
	if !e.identified || !e.key.GuardsAccess() || s.idle || s.targeted && len(s.gateways) == 0 {
		return nil
	}
	o := &Object{Key: e.key, Created: e.created, Labels: e.labels, Substitute: true, Position: at}
	var selector *typev1beta1.WorkloadSelector
	labels := maps.Clone(s.labels)
	maps.DeleteFunc(labels, func(key, value string) bool { return syntax.ObjectLabel(key, value) != "" }) // no workload has such a label
	if len(labels) > 0 {
		selector = &typev1beta1.WorkloadSelector{MatchLabels: labels}
	}
	switch e.key.Kind {
	case KindAuthorizationPolicy:
		if dry, err := strconv.ParseBool(e.annotations[DryRun]); err == nil && dry {
			o.Annotations = map[string]string{DryRun: "true"}
		}
		o.Spec = &security.AuthorizationPolicy{Selector: selector, TargetRefs: s.gateways, Action: security.AuthorizationPolicy_DENY, Rules: []*security.Rule{{}}}
	case KindPeerAuthentication:
		o.Spec = &security.PeerAuthentication{Selector: selector, Mtls: &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_STRICT}}
	case KindRequestAuthentication:
		o.Spec = &security.RequestAuthentication{Selector: selector, TargetRefs: s.gateways, JwtRules: withoutKeys(usable(e.key, s.tokens))}
	}
	if o.rehash() != nil {
		return nil // a label that is no UTF-8, which no document has
	}
	return o
}

// usable returns the rules if proxies can use them, apart from their issuers and keys; none otherwise.
func usable(key Key, given []*security.JWTRule) []*security.JWTRule {
	alone := &security.RequestAuthentication{}
	for _, r := range withoutKeys(given)[1:] {
		r.Issuer = "issuer"
		alone.JwtRules = append(alone.JwtRules, r)
	}
	if Failed(Validate(&Object{Key: key, Spec: alone})) {
		return nil
	}
	return given
}

// withoutKeys returns rules that look for tokens where the given ones do, and at the usual places, and accept none.
func withoutKeys(given []*security.JWTRule) []*security.JWTRule {
	all := []*security.JWTRule{{Jwks: mesh.NoKeys}}
	for _, r := range given {
		if r == nil {
			continue
		}
		all = append(all, &security.JWTRule{
			Issuer: r.Issuer, Jwks: mesh.NoKeys, FromHeaders: r.FromHeaders, FromParams: r.FromParams, FromCookies: r.FromCookies,
			OutputPayloadToHeader: r.OutputPayloadToHeader, OutputClaimToHeaders: r.OutputClaimToHeaders, Presence: r.Presence,
		})
	}
	return all
}

// Denial returns the Problem of a refused access policy whose substitute is o.
func (o *Object) Denial() Problem {
	s := selectionOf(o.Spec)
	whom := "all workloads of namespace " + o.Namespace + ", or of the mesh if that is its root namespace"
	if len(s.labels) > 0 {
		var list []string
		for _, key := range slices.Sorted(maps.Keys(s.labels)) {
			list = append(list, key+"="+s.labels[key])
		}
		whom = "the workloads of namespace " + o.Namespace + " with the labels " + strings.Join(list, ",") + ", or of the mesh if that is its root namespace"
	}
	if len(s.gateways) > 0 {
		var list []string
		for _, target := range s.gateways {
			list = append(list, target.Name)
		}
		whom = "the gateways " + strings.Join(list, ", ") + " of namespace " + o.Namespace
	}
	does := map[string]string{
		KindAuthorizationPolicy:   "every request is denied to ",
		KindPeerAuthentication:    "only mutual TLS (STRICT) is taken by ",
		KindRequestAuthentication: "no token of its issuers is accepted by ",
	}[o.Kind]
	if o.Annotations[DryRun] != "" {
		does = "every request counts as denied in the dry run, to "
	}
	return Problem{Object: o.Key, Position: o.Position, Severity: Error, Code: "policy-refused", Reason: fmt.Sprintf(
		"it is refused and no earlier version is known, so %s%s; correct or delete the object, or set PILOT_REFUSED_POLICIES=ignore to ignore refused policies without an earlier version", does, whom)}
}

// salvage looks for an access policy at the beginning of a document that is not well-formed: before the line with the mistake, or
// before the last top-level field above it.
func salvage(d Document) Document {
	lines := bytes.SplitAfter(d.text.Data, []byte("\n"))
	end := min(len(lines), d.Problems[0].Position.Line-d.text.Before-1)
	for range 2 {
		if end <= 0 {
			return d
		}
		head := document.Text{Data: bytes.Join(lines[:end], nil), Before: d.text.Before}
		if root, err := head.Parse(); err == nil && root != nil && root.Kind == document.Mapping && !isList(root) {
			e := readEnvelope(root)
			if o := denying(e, Position{File: d.Position.File, Line: root.Line}, selectionIn(root.Get("spec"))); o != nil {
				d.Key, d.Identified, d.Cut, d.Denying = e.key, true, true, o
				d.Problems[0].Object = e.key
				return d
			}
		}
		for end--; end > 0 && !topLevel(lines[end]); end-- {
		}
	}
	return d
}

// topLevel reports whether a line of a mapping begins a field that is in no other.
func topLevel(line []byte) bool {
	return len(line) > 0 && ('a' <= line[0] && line[0] <= 'z' || line[0] == '"')
}
