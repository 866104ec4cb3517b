package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// policy is an object about access. It has no name: sets of policies follow each other by edits of the same objects, so that none is ever
// lost between two of them.
type policy struct {
	kind, namespace string
	annotations     object
	spec            object
	name            string // only for tests in which objects come and go
}

// slots is how many objects of each kind a namespace has. The objects that a set does not use have no effect.
const slots = 6

// idle are the specs that say nothing.
func idle() map[string]object {
	return map[string]object{
		"AuthorizationPolicy": {"action": "AUDIT"}, "PeerAuthentication": {"mtls": object{"mode": "UNSET"}}, "RequestAuthentication": {},
	}
}

func authorize(action string, rules ...object) policy {
	spec := object{"action": action}
	if rules != nil {
		spec["rules"] = rules
	}
	return policy{kind: "AuthorizationPolicy", namespace: "shop", spec: spec}
}

// from, to and when are parts of rules.
func from(source object) object  { return object{"from": []object{{"source": source}}} }
func to(operation object) object { return object{"to": []object{{"operation": operation}}} }
func when(conditions ...object) object {
	return object{"when": conditions}
}

// is and isNot are conditions.
func is(key string, values ...string) object    { return object{"key": key, "values": values} }
func isNot(key string, values ...string) object { return object{"key": key, "notValues": values} }

// both joins parts of a rule.
func both(parts ...object) object {
	rule := object{}
	for _, p := range parts {
		maps.Copy(rule, p)
	}
	return rule
}

func denyPaths(paths ...string) policy  { return authorize("DENY", to(object{"paths": paths})) }
func allowPaths(paths ...string) policy { return authorize("ALLOW", to(object{"paths": paths})) }

// denyHeader denies values of a header.
func denyHeader(name string, values ...string) policy {
	return authorize("DENY", when(is("request.headers["+name+"]", values...)))
}

// ask sends requests to an authorizer; all if there are no paths.
func ask(provider string, paths ...string) policy {
	rule := object{}
	if paths != nil {
		rule = to(object{"paths": paths})
	}
	p := authorize("CUSTOM", rule)
	p.spec["provider"] = object{"name": provider}
	return p
}

func mutual(mode string) policy {
	return policy{kind: "PeerAuthentication", namespace: "shop", spec: object{"mtls": object{"mode": mode}}}
}

func tokensOf(rules ...object) policy {
	return policy{kind: "RequestAuthentication", namespace: "shop", spec: object{"jwtRules": rules}}
}

// everywhere is a policy for the mesh.
func (p policy) everywhere() policy { p.namespace = "istio-system"; return p }

// dry is a policy that is tried only.
func (p policy) dry() policy {
	p.annotations = object{"istio.io/dry-run": "true"}
	return p
}

// called is a policy with a name.
func (p policy) called(name string) policy { p.name = name; return p }

// selecting is a policy for the workload.
func (p policy) selecting() policy {
	p.spec = maps.Clone(p.spec)
	p.spec["selector"] = object{"matchLabels": object{"app": "web"}}
	return p
}

// written is a set of policies as a file. The mark, a policy that decides nothing, lets the listener show which set it has.
func written(mark string, policies ...policy) string {
	next := map[string]int{}
	var b strings.Builder
	write := func(kind, namespace, name string, annotations, spec object) {
		b.WriteString(asJSON(object{
			"apiVersion": "security.istio.io/v1", "kind": kind, "metadata": object{"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec,
		}) + "\n---\n")
	}
	for _, p := range policies {
		key := p.kind + " " + p.namespace
		if p.name != "" {
			write(p.kind, p.namespace, p.name, p.annotations, p.spec)
			continue
		}
		write(p.kind, p.namespace, fmt.Sprint("slot-", next[key]), p.annotations, p.spec)
		next[key]++
	}
	for kind, spec := range idle() {
		for _, namespace := range []string{"shop", "istio-system"} {
			for n := next[kind+" "+namespace]; n < slots && (kind != "PeerAuthentication" || n == 0); n++ {
				write(kind, namespace, fmt.Sprint("slot-", n), nil, spec)
			}
		}
	}
	write("AuthorizationPolicy", "shop", "mark", nil, object{"action": "AUDIT", "rules": []object{to(object{"paths": []string{mark}})}})
	return strings.TrimSuffix(b.String(), "---\n")
}

// enforce puts policies in force, with settings of the mesh beyond the usual ones, and waits until Envoy obeys.
func (b *bed) enforce(t *testing.T, mesh string, policies ...policy) {
	t.Helper()
	b.generation++
	mark := fmt.Sprintf("/set-%d", b.generation)
	if mesh = settings + mesh; mesh != b.mesh {
		if err := b.writeMesh(mesh); err != nil {
			t.Fatal(err)
		}
		b.mesh = mesh
		b.settle(t, mesh)
	}
	if _, err := b.plane.Write("policies.yaml", written(mark, policies...)); err != nil {
		t.Fatal(err)
	}
	b.obeys(t, mark)
}

// obeys waits until new connections are under the set of policies with a mark.
func (b *bed) obeys(t *testing.T, mark string) {
	t.Helper()
	await(t, "Envoy to have the policies", func(ctx context.Context) error {
		page, err := b.agent.Admin(ctx, "/config_dump?resource=dynamic_listeners&name_regex=virtualInbound")
		if err == nil && !strings.Contains(page, `"`+mark+`"`) {
			err = errors.New("the listener is another one; problems:\n" + b.problems(ctx))
		}
		if err == nil && strings.Contains(page, "warming_state") {
			err = errors.New("the listener is warming")
		}
		return err
	})
	// The main thread has the listener. After an answer of the worker, which takes several turns of its loop, it has it as well.
	for range 2 {
		b.strike(t.Context(), get("/"+mark).as("cli"))
	}
}

// settle waits until paths are normalised as the settings of the mesh say.
func (b *bed) settle(t *testing.T, mesh string) {
	t.Helper()
	want := map[string][2]bool{"NONE": {}, "MERGE_SLASHES": {true, true}, "DECODE_AND_MERGE_SLASHES": {true, true}}
	has := [2]bool{true, false}
	decode := strings.Contains(mesh, "DECODE_AND")
	for name, flags := range want {
		if strings.Contains(mesh, "normalization: "+name) {
			has = flags
		}
	}
	await(t, "Envoy to normalise paths as it must", func(ctx context.Context) error {
		page, err := b.agent.Admin(ctx, "/config_dump?resource=dynamic_listeners&name_regex=virtualInbound")
		got := [2]bool{strings.Contains(page, `"normalize_path": true`), strings.Contains(page, `"merge_slashes": true`)}
		if err == nil && (got != has || strings.Contains(page, "UNESCAPE_AND_FORWARD") != decode) {
			err = fmt.Errorf("it is %v, not %v", got, has)
		}
		return err
	})
}
