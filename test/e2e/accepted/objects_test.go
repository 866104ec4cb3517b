package accepted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/object"
)

// kindMesh is the kind of the document with the mesh configuration, which is no object.
const kindMesh = "MeshConfig"

// part is a document that Pilot accepts.
type part struct {
	doc    tree
	kind   string
	object *api.Object
	values []object.Item
	mesh   *meshconfig.MeshConfig
}

// repairs is how many times refused fields are removed from a document before it is given up.
const repairs = 40

// accept removes the fields that Pilot refuses, and returns the rest; false if nothing acceptable is left.
func accept(t reporter, doc tree) (*part, bool) {
	for range repairs {
		p, problems := read(t, doc)
		if p != nil {
			return p, true
		}
		removed := false
		for _, one := range problems {
			if one.Severity == api.Error && one.Field != "" && !removed {
				removed = remove(doc, one.Field)
			}
		}
		if !removed {
			return nil, false
		}
	}
	return nil, false
}

// read checks a document as analyze and the webhook do. The part is nil if Pilot refuses it.
func read(t reporter, doc tree) (*part, []api.Problem) {
	kind := doc["kind"].(string)
	if kind == kindMesh {
		return readMesh(t, doc)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	docs := api.Decode("drawn.yaml", text)
	if len(docs) != 1 {
		t.Fatalf("one document was read as %d: %s", len(docs), text)
	}
	d := docs[0]
	d.Check()
	sound(t, text, d.Problems)
	if d.Object != nil {
		return &part{doc: doc, kind: kind, object: d.Object}, nil
	}
	if d.Other != nil {
		c := object.Converter{Texts: object.NewTexts(object.TextLimit), Written: true}
		items, _, problem := c.Read(&d, "Kubernetes")
		if problem != nil {
			return nil, []api.Problem{*problem}
		}
		return &part{doc: doc, kind: kind, values: items}, nil
	}
	return nil, d.Problems
}

func readMesh(t reporter, doc tree) (*part, []api.Problem) {
	text, err := json.Marshal(doc["spec"])
	if err != nil {
		t.Fatal(err)
	}
	m, problems := api.DecodeMesh("mesh.yaml", text)
	sound(t, text, problems)
	for i := range problems {
		problems[i].Field = "spec." + problems[i].Field
	}
	if m == nil {
		return nil, problems
	}
	return &part{doc: doc, kind: kindMesh, mesh: m}, nil
}

// sound fails for a problem that reports a contained panic.
func sound(t reporter, text []byte, problems []api.Problem) {
	for _, p := range problems {
		if p.Code == "internal-error" {
			t.Fatalf("checking a document panics: %v\n%s", p, text)
		}
	}
}

// steps splits a path such as spec.http[0].labels[a.b].
var steps = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// remove deletes the value at the path of a problem, or the innermost value around it that exists. It returns false if nothing is left to delete.
func remove(doc tree, path string) bool {
	names := steps.FindAllString(path, -1)
	for i, name := range names {
		names[i] = strings.Trim(name, "[]")
	}
	for n := len(names); n > 1; n-- {
		if _, ok := without(doc, names[:n]); ok {
			return true
		}
	}
	return false
}

// without deletes a value in place. It returns the value around it, which is another one if it is a list.
func without(v any, path []string) (any, bool) {
	switch v := v.(type) {
	case tree:
		name := path[0]
		inner, ok := v[name]
		if !ok {
			return v, false
		}
		if len(path) == 1 {
			delete(v, name)
			return v, true
		}
		v[name], ok = without(inner, path[1:])
		return v, ok
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(v) {
			return v, false
		}
		if len(path) == 1 {
			return append(append([]any{}, v[:i]...), v[i+1:]...), true
		}
		inner, ok := without(v[i], path[1:])
		v[i] = inner
		return v, ok
	}
	return v, false
}

// patched draws the values of the patches of an EnvoyFilter.
func (d draw) patched(spec tree) {
	patches, _ := spec["configPatches"].([]any)
	for _, one := range patches {
		one := one.(tree)
		patch, _ := one["patch"].(tree)
		applyTo, _ := one["applyTo"].(string)
		m := map[string]proto.Message{
			"LISTENER": &listenerv3.Listener{}, "FILTER_CHAIN": &listenerv3.FilterChain{}, "NETWORK_FILTER": &listenerv3.Filter{}, "LISTENER_FILTER": &listenerv3.ListenerFilter{},
			"HTTP_FILTER": &hcmv3.HttpFilter{}, "ROUTE_CONFIGURATION": &routev3.RouteConfiguration{}, "VIRTUAL_HOST": &routev3.VirtualHost{}, "HTTP_ROUTE": &routev3.Route{},
			"CLUSTER": &clusterv3.Cluster{},
		}[applyTo]
		if patch != nil && m != nil {
			patch["value"] = d.message(m.ProtoReflect().Descriptor(), 4)
		}
	}
}

// document draws a document of a kind.
func (d draw) document(k api.Kind, name string) tree {
	metadata := tree{"name": name}
	if k.Name != "IngressClass" {
		metadata["namespace"] = pick(d, []string{"shop", "shop", "shop", "istio-system", "other"})
	}
	if k.Name == "Gateway" {
		metadata["name"] = "gw"
	}
	spec := d.message(k.NewSpec().ProtoReflect().Descriptor(), 0).(tree)
	if k.Name == api.KindTrafficExtension {
		delete(spec, "wasm") // fetched by agents
	}
	if k.Name == api.KindEnvoyFilter {
		d.patched(spec)
	}
	return tree{"apiVersion": k.Group() + "/" + k.Versions()[0], "kind": k.Name, "metadata": metadata, "spec": spec}
}

// mesh draws a mesh configuration. The providers that other objects name are always there.
func (d draw) mesh() tree {
	spec := d.message((&meshconfig.MeshConfig{}).ProtoReflect().Descriptor(), 1).(tree)
	delete(spec, "configSources")
	delete(spec, "rootNamespace")
	own, _ := spec["extensionProviders"].([]any)
	for _, p := range own { // names must not repeat
		if p, ok := p.(tree); ok {
			p["name"] = fmt.Sprintf("p%d", d.IntN(100))
		}
	}
	spec["extensionProviders"] = append(own, providers()...)
	return tree{"kind": kindMesh, "spec": spec}
}

func providers() (list []any) {
	const service = "a.shop.svc.cluster.local"
	for name, one := range map[string]tree{
		"ext-http": {"envoyExtAuthzHttp": tree{"service": service, "port": 80}}, "ext-grpc": {"envoyExtAuthzGrpc": tree{"service": service, "port": 80}},
		"log": {"envoyFileAccessLog": tree{"path": "/dev/null"}}, "als": {"envoyHttpAls": tree{"service": service, "port": 80}}, "tcpals": {"envoyTcpAls": tree{"service": service, "port": 80}},
		"otellog": {"envoyOtelAls": tree{"service": service, "port": 80}}, "zip": {"zipkin": tree{"service": service, "port": 80}}, "otel": {"opentelemetry": tree{"service": service, "port": 80}},
		"otelhttp": {"opentelemetry": tree{"service": service, "port": 80, "http": tree{"path": "/v1/traces"}}}, "prom": {"prometheus": tree{}},
		"dd": {"datadog": tree{"service": service, "port": 80}}, "sky": {"skywalking": tree{"service": service, "port": 80}},
	} {
		one["name"] = name
		list = append(list, one)
	}
	return list
}
