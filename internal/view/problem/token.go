package problem

import (
	"fmt"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// claimPrefix begins the name of a header in a match that means a claim of a verified token.
const claimPrefix = "@request.auth.claims"

// unverified warns of an AuthorizationPolicy about tokens where nothing verifies tokens: no request has a token for it.
func (f *findings) unverified(row *policies.Authorization) {
	at := firstSource(row.Spec, func(s *security.Source) string {
		return firstSet(s.GetRequestPrincipals(), "requestPrincipals", s.GetNotRequestPrincipals(), "notRequestPrincipals")
	}, "request.auth.")
	if at == "" || f.verifiesTokens(f.key.Namespace) {
		return
	}
	f.warn("policy-no-token", at, "this is about the token of a request, and no RequestAuthentication verifies tokens for these workloads: as if no request had one; add a RequestAuthentication for them")
}

// verifiesTokens reports whether some RequestAuthentication may apply to workloads of a namespace.
func (f *findings) verifiesTokens(namespace string) bool {
	root, checked := f.q.tables.RootNamespace(f.r), 0
	for k := range f.q.tables.Kinds.Group(f.r, api.KindRequestAuthentication).All() {
		if checked++; checked > maxCompared || k.Namespace == namespace || k.Namespace == root || namespace == root {
			return true
		}
	}
	return false
}

// unverifiedMatches warns of matches by claims of a token in a mesh where nothing verifies tokens.
func (f *findings) unverifiedMatches(vs *state.VirtualService) {
	for i, rule := range vs.Spec.GetHttp() {
		for j, m := range rule.GetMatch() {
			for _, part := range []struct {
				name    string
				headers map[string]*networking.StringMatch
			}{{"headers", m.GetHeaders()}, {"withoutHeaders", m.GetWithoutHeaders()}} {
				name, ok := claimIn(part.headers)
				if !ok {
					continue
				}
				if f.q.tables.Kinds.Group(f.r, api.KindRequestAuthentication).Len() == 0 {
					f.warn("match-no-token", fmt.Sprintf("spec.http[%d].match[%d].%s", i, j, part.name), "%s is a claim of the token of a request, and no RequestAuthentication verifies tokens: as if no request had one; add a RequestAuthentication for the gateways", name)
				}
				return
			}
		}
	}
}

// claimIn returns the name of the first header that means a claim.
func claimIn(headers map[string]*networking.StringMatch) (first string, ok bool) {
	for name := range headers {
		if strings.HasPrefix(strings.ToLower(name), claimPrefix) && (!ok || name < first) {
			first, ok = name, true
		}
	}
	return first, ok
}

// unidentified warns of an AuthorizationPolicy about the identity of callers for workloads that take no mutual TLS: no caller has one.
func (f *findings) unidentified(row *policies.Authorization) {
	at := firstSource(row.Spec, func(s *security.Source) string {
		of := firstSet(s.GetPrincipals(), "principals", s.GetNotPrincipals(), "notPrincipals")
		if of == "" {
			of = firstSet(s.GetNamespaces(), "namespaces", s.GetNotNamespaces(), "notNamespaces")
		}
		if of == "" {
			of = firstSet(s.GetServiceAccounts(), "serviceAccounts", s.GetNotServiceAccounts(), "notServiceAccounts")
		}
		return of
	}, "source.principal", "source.namespace", "source.serviceAccount")
	selection, ok := f.q.tables.Security.Selections.Get(f.r, f.key)
	if at == "" || !ok || selection.Targeted || f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return
	}
	server := f.q.services.Peers.Explain(f.r, f.key.Namespace, selection.Labels, 0)
	policy, ok := f.q.tables.Peers.Policies.Get(f.r, server.By)
	if server.Mode != mesh.MTLSDisabled || !ok || !policy.MTLS.Ports.Empty() {
		return
	}
	f.warn("policy-no-identity", at, "this is about the identity of a caller, and %s, which is DISABLE, takes no mutual TLS: as if no caller had one; set its mode to PERMISSIVE or STRICT", server.By)
}

// firstSet names the first of two lists that has elements.
func firstSet(list []string, name string, not []string, notName string) string {
	switch {
	case len(list) > 0:
		return name
	case len(not) > 0:
		return notName
	}
	return ""
}

// firstSource returns the field of the first rule of a policy with a source for which of returns a field, or with a condition whose key
// has a prefix; empty without any.
func firstSource(spec *security.AuthorizationPolicy, of func(*security.Source) string, prefixes ...string) string {
	for i, rule := range spec.GetRules() {
		for j, from := range rule.GetFrom() {
			if name := of(from.GetSource()); name != "" {
				return fmt.Sprintf("spec.rules[%d].from[%d].source.%s", i, j, name)
			}
		}
		for j, when := range rule.GetWhen() {
			for _, prefix := range prefixes {
				if strings.HasPrefix(when.GetKey(), prefix) {
					return fmt.Sprintf("spec.rules[%d].when[%d].key", i, j)
				}
			}
		}
	}
	return ""
}
