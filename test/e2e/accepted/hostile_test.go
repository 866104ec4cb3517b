package accepted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/testbed"
)

// hostile is an EnvoyFilter that does harm, and what becomes of it.
type hostile struct {
	name, patches string
	// refused is true if Pilot refuses the document.
	refused bool
	// problems are the codes of the problems that the EnvoyFilter has in the end.
	problems []code.Code
}

// patchOf is a patch of the filters for requests.
func patchOf(operation, value string) string {
	return fmt.Sprintf(`[{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}},
  patch: {operation: %s, value: %s}}]`, operation, value)
}

// nested is a message that contains itself, some levels deep.
func nested(levels int) string {
	const open = `{"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, x: `
	return strings.Repeat(open, levels) + "1" + strings.Repeat("}", levels)
}

// extensionsIn is an extension that is configured in an extension, some levels deep.
func extensionsIn(levels int) string {
	inner := `{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}`
	for range levels {
		inner = `{"@type": type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher, extension_config: {name: x, typed_config: ` + inner + `}}`
	}
	return `{name: x, typed_config: ` + inner + `}`
}

// ruleIn is a filter with a rule that contains itself, some levels deep.
func ruleIn(levels int) string {
	inner := strings.Repeat("{not_rule: ", levels) + "{any: true}" + strings.Repeat("}", levels)
	return `{name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC, rules: {policies: {p: {principals: [{any: true}], permissions: [` + inner + `]}}}}}`
}

func hostiles() []hostile {
	const nothing = `[{applyTo: LISTENER, patch: {operation: REMOVE}}, {applyTo: CLUSTER, patch: {operation: REMOVE}}, {applyTo: VIRTUAL_HOST, patch: {operation: REMOVE}}, {applyTo: HTTP_ROUTE, patch: {operation: REMOVE}}]`
	const parts = `[{applyTo: FILTER_CHAIN, patch: {operation: REMOVE}}, {applyTo: NETWORK_FILTER, patch: {operation: REMOVE}}, {applyTo: HTTP_FILTER, patch: {operation: REMOVE}}, {applyTo: LISTENER_FILTER, patch: {operation: REMOVE}}]`
	lua := func(text string) string {
		return patchOf("INSERT_BEFORE", `{name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "`+text+`"}}}`)
	}
	regex := func(text string) string {
		return `[{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {match: {safe_regex: {regex: "` + text + `"}}}}}]`
	}
	return []hostile{
		{name: "everything is removed", patches: nothing},
		{name: "all parts of listeners are removed", patches: parts, problems: []code.Code{"patch-left-out"}},
		{name: "empty values", patches: `[{applyTo: LISTENER, patch: {operation: MERGE, value: {}}}, {applyTo: CLUSTER, patch: {operation: ADD, value: {}}}, {applyTo: VIRTUAL_HOST, patch: {operation: REPLACE, value: {}}}]`, problems: []code.Code{"patch-left-out"}},
		{name: "a megabyte", patches: lua("--" + strings.Repeat("x", 1<<20))},
		{name: "a thousand levels of JSON", patches: patchOf("INSERT_BEFORE", "{name: x, typed_config: "+nested(1000)+"}"), refused: true},
		{name: "twenty levels of extensions", patches: patchOf("INSERT_BEFORE", extensionsIn(20)), problems: []code.Code{"proxy-rejected"}},
		{name: "a rule within 150 rules", patches: patchOf("INSERT_BEFORE", ruleIn(150)), refused: true},
		{name: "a rule within 40 rules", patches: patchOf("INSERT_BEFORE", ruleIn(40))},
		{name: "an unknown message", patches: patchOf("INSERT_BEFORE", `{name: x, typed_config: {"@type": type.googleapis.com/example.Unknown, a: 1}}`), refused: true},
		{name: "a message that configures no extension", patches: patchOf("INSERT_BEFORE", `{name: x, typed_config: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: x}}`), problems: []code.Code{"proxy-rejected"}},
		{name: "an error in Lua", patches: lua("function"), problems: []code.Code{"proxy-rejected"}},
		{name: "a large expression", patches: regex("((a{100}){100}){10}"), problems: []code.Code{"proxy-rejected"}},
		{name: "no filter for access", patches: `[{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.rbac}}}}}, patch: {operation: REMOVE}}]`,
			problems: []code.Code{"patch-removes-access"}},
		{name: "versions by a long expression", patches: `[{applyTo: CLUSTER, match: {proxy: {proxyVersion: "` + strings.Repeat("(a|b)*", 300) + `"}}, patch: {operation: REMOVE}}]`},
	}
}

// TestHostileEnvoyFilters: whatever an EnvoyFilter does, the control plane and the Envoys run on, the problems name it, and after it is gone all is as before.
func TestHostileEnvoyFilters(t *testing.T) {
	b := newBed(t)
	policy, problems := read(t, document(t, `{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: deny, namespace: shop}, spec: {action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}}`))
	if policy == nil {
		t.Fatal(problems)
	}
	for _, f := range b.load([]*part{policy}) {
		t.Errorf("without EnvoyFilter: %s: %.600s", f.kind, f.text)
	}
	neighbours := b.states(t)
	for _, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			p, problems := read(t, document(t, `{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: hostile, namespace: shop}, spec: {workloadSelector: {labels: {app: a}}, configPatches: `+h.patches+`}}`))
			if (p == nil) != h.refused {
				t.Fatalf("refused: %v, want %v: %.300v", p == nil, h.refused, problems)
			}
			if p == nil {
				return
			}
			for _, f := range b.load([]*part{policy, p}) {
				rejects := f.byEnvoy && slices.Contains(h.problems, "proxy-rejected") // of what the rejected content is made, is known later: see hasProblems
				if f.fatal || !rejects {
					t.Errorf("%s: %.600s", f.kind, f.text)
				}
			}
			b.hasProblems(t, p.object.Key, h.problems)
			b.areUnpatched(t, neighbours)
			for _, f := range b.load([]*part{policy}) {
				t.Errorf("after it is gone: %s: %.600s", f.kind, f.text)
			}
		})
	}
}

// states returns what the Envoys that are not selected have, by node.
func (b *bed) states(t *testing.T) map[string]*resource.State {
	t.Helper()
	states, err := loop.Look(t.Context(), b.world.plane.loop, func(v *loop.View) map[string]*resource.State {
		states := map[string]*resource.State{}
		for _, s := range b.world.plane.streams.Streams() {
			if c, ok := v.Queries.Class.Get(v.Graph.Glance(), s.Attachment); ok && !strings.Contains(s.Node, "~a-1.") {
				states[s.Node], _ = v.Queries.State.Get(v.Graph.Glance(), c)
			}
		}
		return states
	})
	if err != nil || len(states) != 2 {
		t.Fatal(len(states), err)
	}
	return states
}

// areUnpatched wants neighbours to have the same resources as before, apart from the endpoint that differs from mesh to mesh.
func (b *bed) areUnpatched(t *testing.T, before map[string]*resource.State) {
	t.Helper()
	for node, now := range b.states(t) {
		for _, typ := range []resource.Type{resource.Cluster, resource.Listener, resource.Route} {
			for d := range resource.Diff(before[node].Layers(typ), now.Layers(typ)) {
				t.Errorf("%s: %v %s is patched", node, typ, d.Name)
			}
		}
	}
}

// document parses one document.
func document(t *testing.T, text string) (doc tree) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// hasProblems waits until an object has problems with these codes, and no other codes but the one for a patch that matches nothing.
func (b *bed) hasProblems(t *testing.T, about api.Key, want []code.Code) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := testbed.Until(ctx, "the problems of the EnvoyFilter", func(ctx context.Context) error {
		list, err := loop.Look(ctx, b.world.plane.loop, func(v *loop.View) (list []api.Problem) {
			for _, p := range v.Problems.All() {
				if p.Object == about && p.Code != "patch-no-match" {
					list = append(list, p)
				}
			}
			return list
		})
		var codes []code.Code
		for _, p := range list {
			codes = append(codes, p.Code)
		}
		slices.Sort(codes)
		if err == nil && !slices.Equal(slices.Compact(codes), want) {
			err = fmt.Errorf("problems %v, want %v: %.600v", codes, want, list)
		}
		return err
	})
	if err != nil {
		t.Error(errors.Unwrap(err), err)
	}
}
