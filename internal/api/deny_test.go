package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
)

const policyHead = `apiVersion: security.istio.io/v1
kind: %s
metadata: {name: p, namespace: bank}
spec:
`

// read decodes and checks the only document of a text.
func read(t *testing.T, text string) api.Document {
	t.Helper()
	docs := api.Decode("p.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatalf("%d documents", len(docs))
	}
	docs[0].Check()
	return docs[0]
}

// TestNoPartOfAPolicyIsIgnored: an unknown field anywhere in an access policy refuses the policy, because access that the field
// restricts would be open, also if an API server has accepted it. In other kinds it is a warning then.
func TestNoPartOfAPolicyIsIgnored(t *testing.T) {
	for _, c := range []struct{ kind, spec, field string }{
		{api.KindAuthorizationPolicy, "{rules: [{from: [{source: {namespaces: [ops], claimsRequired: [admin]}}]}]}", "spec.rules[0].from[0].source.claimsRequired"},
		{api.KindAuthorizationPolicy, "{rules: [{from: [{source: {namespaces: [ops]}}], until: {date: x}}]}", "spec.rules[0].until"},
		{api.KindAuthorizationPolicy, "{rules: [{expression: x}]}", "spec.rules[0].expression"},
		{api.KindAuthorizationPolicy, "{rules: [{to: [{operation: {queryParameters: [x]}}]}]}", "spec.rules[0].to[0].operation.queryParameters"},
		{api.KindAuthorizationPolicy, "{rules: [{when: [{key: source.ip, values: [10.0.0.1], ignoreCase: true}]}]}", "spec.rules[0].when[0].ignoreCase"},
		{api.KindAuthorizationPolicy, "{priority: 1, rules: [{}]}", "spec.priority"},
		{api.KindAuthorizationPolicy, "{selector: {matchLabels: {app: a}, expressions: []}, rules: [{}]}", "spec.selector.expressions"},
		{api.KindAuthorizationPolicy, "{action: CUSTOM, provider: {name: x, unless: y}, rules: [{}]}", "spec.provider.unless"},
		{api.KindPeerAuthentication, "{mtls: {mode: STRICT, minimumVersion: x}}", "spec.mtls.minimumVersion"},
		{api.KindPeerAuthentication, "{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {mode: STRICT, extra: 1}}}", "spec.portLevelMtls[80].extra"},
		{api.KindRequestAuthentication, "{jwtRules: [{issuer: i, algorithms: [RS256]}]}", "spec.jwtRules[0].algorithms"},
		{api.KindRequestAuthentication, "{jwtRules: [{issuer: i, fromHeaders: [{name: x, encoding: y}]}]}", "spec.jwtRules[0].fromHeaders[0].encoding"},
		{api.KindRequestAuthentication, "{enforcement: strong}", "spec.enforcement"},
	} {
		text := fmt.Sprintf(policyHead, c.kind) + "  " + c.spec + "\n"
		if served := api.DecodeServed("p.yaml", []byte(text))[0]; served.Object != nil || served.Denying == nil {
			t.Errorf("%s %s, which an API server has accepted: %v", c.kind, c.spec, served.Problems)
		}
		d := read(t, text)
		if d.Object != nil || len(d.Problems) != 1 || d.Problems[0].Field != c.field || d.Problems[0].Severity != api.Error || d.Denying == nil {
			t.Errorf("%s %s: %v, %v", c.kind, c.spec, d.Object, d.Problems)
		}
	}
	d := api.DecodeServed("p.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s}\nspec: {egress: [{hosts: ['*/*']}], zzzzz: 1}\n"))[0]
	if d.Object == nil || d.Denying != nil {
		t.Errorf("a Sidecar: %v", d.Problems)
	}
}

// stand describes the substitute of a document.
func stand(d api.Document) string {
	if d.Denying == nil {
		return "nothing"
	}
	who := func(labels map[string]string, targets ...*typev1beta1.PolicyTargetReference) string {
		text := d.Denying.Namespace
		for _, target := range targets {
			text += fmt.Sprintf(" %s %s", target.Kind, target.Name)
		}
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			text += " " + key + "=" + labels[key]
		}
		return text
	}
	switch s := d.Denying.Spec.(type) {
	case *security.AuthorizationPolicy:
		dry := map[bool]string{true: "in a dry run "}[d.Denying.Annotations[api.DryRun] == "true"]
		return fmt.Sprintf("%s%v with %d rules for %s", dry, s.Action, len(s.Rules), who(s.GetSelector().GetMatchLabels(), s.TargetRefs...))
	case *security.PeerAuthentication:
		return fmt.Sprintf("%v for %s", s.Mtls.Mode, who(s.GetSelector().GetMatchLabels()))
	case *security.RequestAuthentication:
		var list []string
		for _, r := range s.JwtRules {
			if r.Jwks != mesh.NoKeys || r.JwksUri != "" {
				list = append(list, "KEYS")
			}
			text := r.Issuer
			for _, h := range r.FromHeaders {
				text += " header " + h.Name
			}
			if r.Presence == security.JWTRule_REQUIRED {
				text += " required"
			}
			list = append(list, text)
		}
		return fmt.Sprintf("tokens of [%s] for %s", strings.Join(list, ","), who(s.GetSelector().GetMatchLabels(), s.TargetRefs...))
	}
	return "?"
}

// TestSubstitute states the substitute of each refused policy. It never selects fewer workloads than the policy could.
func TestSubstitute(t *testing.T) {
	for _, c := range []struct{ name, kind, spec, want string }{
		{"refused by its rule", api.KindAuthorizationPolicy, "selector: {matchLabels: {app: a, tier: b}}\n  action: DENY\n  rules: [{from: [{}]}]", "DENY with 1 rules for bank app=a tier=b"},
		{"a DENY without rules", api.KindAuthorizationPolicy, "action: DENY", "nothing"},
		{"a CUSTOM without rules", api.KindAuthorizationPolicy, "action: CUSTOM\n  rules: []", "nothing"},
		{"a DENY with misspelt rules", api.KindAuthorizationPolicy, "action: DENY\n  rule: [{}]", "DENY with 1 rules for bank"},
		{"an ALLOW without rules, and without a label", api.KindAuthorizationPolicy, "selector: {matchLabels: {'*': a}}", "DENY with 1 rules for bank"},
		{"a good one", api.KindAuthorizationPolicy, "action: DENY\n  rules: [{}]", "nothing"},
		{"an ALLOW", api.KindAuthorizationPolicy, "selector: {matchLabels: {app: a}}\n  rules: [{x: 1}]", "DENY with 1 rules for bank app=a"},
		{"no selector", api.KindAuthorizationPolicy, "rules: [{x: 1}]", "DENY with 1 rules for bank"},
		{"a number as label", api.KindAuthorizationPolicy, "selector: {matchLabels: {app: a, version: 1}}", "DENY with 1 rules for bank app=a"},
		{"a label that no workload has", api.KindAuthorizationPolicy, "selector: {matchLabels: {'a b': c, app: a}}\n  rules: [{x: 1}]", "DENY with 1 rules for bank app=a"},
		{"a misspelt selector", api.KindAuthorizationPolicy, "selectr: {matchLabels: {app: a}}", "DENY with 1 rules for bank"},
		{"misspelt labels", api.KindAuthorizationPolicy, "selector: {matchLabel: {app: a}}", "DENY with 1 rules for bank"},
		{"a label twice", api.KindAuthorizationPolicy, "selector: {matchLabels: {app: a, app: b}}", "DENY with 1 rules for bank"},
		{"two selectors", api.KindAuthorizationPolicy, "selector: {matchLabels: {app: a}}\n  selector: {matchLabels: {app: b}}", "DENY with 1 rules for bank"},
		{"labels that are a text", api.KindAuthorizationPolicy, "selector: {matchLabels: app}", "DENY with 1 rules for bank"},
		{"for a gateway", api.KindAuthorizationPolicy, "targetRefs: [{kind: Gateway, group: x, name: g}]\n  rules: [{x: 1}]", "DENY with 1 rules for bank Gateway g"},
		{"for several targets", api.KindAuthorizationPolicy, "targetRefs: [{kind: Service, name: s}, {kind: Gateway, name: 5}, {kind: Gateway, group: gateway.networking.k8s.io, name: h}]\n  action: DENY\n  rules: [{}]", "DENY with 1 rules for bank Gateway h"},
		{"for a target", api.KindRequestAuthentication, "targetRef: {kind: Gateway, group: gateway.networking.k8s.io, name: g}\n  jwtRules: [{issuer: i, jwks: '{}'}]", "tokens of [,i] for bank Gateway g"},
		{"for a service", api.KindAuthorizationPolicy, "targetRefs: [{kind: Service, name: s}]\n  rules: [{x: 1}]", "nothing"},
		{"for no target", api.KindAuthorizationPolicy, "targetRefs: []\n  rules: [{x: 1}]", "DENY with 1 rules for bank"},
		{"for a gateway and workloads", api.KindAuthorizationPolicy, "targetRefs: [{kind: Gateway, group: x, name: g}]\n  selector: {matchLabels: {app: a}}\n  rules: [{}]", "DENY with 1 rules for bank app=a"},
		{"no spec", api.KindAuthorizationPolicy, "5", "DENY with 1 rules for bank"},
		{"not well-formed at the end", api.KindAuthorizationPolicy, "selector:\n    matchLabels:\n      app: a\n  rules: [{\n", "DENY with 1 rules for bank app=a"},
		{"a tab", api.KindAuthorizationPolicy, "selector:\n    matchLabels:\n      app: a\n  rules:\n\t- {}\n", "DENY with 1 rules for bank app=a"},
		{"mutual TLS", api.KindPeerAuthentication, "mtls: {mode: STRICTER}", "STRICT for bank"},
		{"mutual TLS by port", api.KindPeerAuthentication, "selector: {matchLabels: {app: a}}\n  portLevelMtls: {0: {mode: PERMISSIVE}}", "STRICT for bank app=a"},
		{"tokens", api.KindRequestAuthentication, "selector: {matchLabels: {app: a}}\n  jwtRules: [{issuer: i, jwks: '{}'}]", "tokens of [,i] for bank app=a"},
		{"tokens at other places", api.KindRequestAuthentication, "jwtRules: [{issuer: i, jwks: 5, fromHeaders: [{name: x-token}], presence: REQUIRED}]", "tokens of [,i header x-token required] for bank"},
		{"tokens in a header that is none", api.KindRequestAuthentication, "jwtRules: [{issuer: i, fromHeaders: [{name: 'x token'}]}]", "tokens of [] for bank"},
		{"another kind", api.KindSidecar, "egress: 5", "nothing"},
	} {
		head := fmt.Sprintf(policyHead, c.kind)
		if c.kind == api.KindSidecar {
			head = strings.Replace(head, "security", "networking", 1)
		}
		d := read(t, head+"  "+c.spec+"\n")
		if got := stand(d); got != c.want {
			t.Errorf("%s: %s, want %s (%v)", c.name, got, c.want, d.Problems)
		}
		if o := d.Denying; o != nil && (!o.Substitute || o.Key != d.Key || !d.Identified || o.Kind != api.KindRequestAuthentication && api.Failed(api.Validate(o))) {
			t.Errorf("%s: the substitute is not valid: %v", c.name, api.Validate(o))
		}
	}
	dry := read(t, strings.Replace(fmt.Sprintf(policyHead, api.KindAuthorizationPolicy), "namespace: bank", "namespace: bank, annotations: {istio.io/dry-run: 'true'}", 1)+"  action: DENY\n  rules: [{from: [{}]}]\n")
	if got := stand(dry); got != "in a dry run DENY with 1 rules for bank" {
		t.Error(got)
	}
}

// TestSubstituteIsNoOrdinaryObject: a substitute differs from the same object of a user, and moves with its document.
func TestSubstituteIsNoOrdinaryObject(t *testing.T) {
	head := fmt.Sprintf(policyHead, api.KindAuthorizationPolicy)
	refused, good := read(t, head+"  action: DENY\n  rules: [{from: [{}]}]\n"), read(t, head+"  action: DENY\n  rules: [{}]\n")
	if refused.Denying.Hash == good.Object.Hash {
		t.Error("the same hash")
	}
	if moved := refused.ShiftLines(3); moved.Denying.Position.Line != 4 || refused.Denying.Position.Line != 1 {
		t.Error(moved.Denying.Position, refused.Denying.Position)
	}
}

// TestTwoObjectsInOneDocument: a missing separator hides an object, so the document may have more than the one that it names.
func TestTwoObjectsInOneDocument(t *testing.T) {
	head := fmt.Sprintf(policyHead, api.KindAuthorizationPolicy)
	if d := read(t, head+"  action: DENY\n"+head+"  action: DENY\n"); !d.Cut || d.Object != nil {
		t.Error("it is read as one object")
	}
}
