package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/push"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// configDump is what a proxy is to have in the form of Envoy's admin page of that name, so that tools for one read the
// other. What is held back from the proxy because it rejected it is in it: syncz tells that it is not there.
func (p *Pages) configDump(r *http.Request) (any, error) {
	types, err := dumpTypes(r)
	if err != nil {
		return nil, err
	}
	s, err := p.one(r)
	if err != nil {
		return nil, err
	}
	type found struct {
		class proxy.Class
		state *resource.State
	}
	have, err := inspect(r, p, func(v *push.View) found {
		class, ok := v.Class(s.Attachment)
		if !ok {
			return found{}
		}
		return found{class, v.State(class)}
	})
	if err != nil {
		return nil, err
	}
	if have.state == nil {
		return nil, refuse(http.StatusServiceUnavailable, "the configuration of %s is being built; try again", s.name())
	}
	dump := struct {
		Proxy    string           `json:"proxy"`
		Class    string           `json:"class"`
		Revision store.Revision   `json:"revision"`
		Configs  []map[string]any `json:"configs"`
	}{Proxy: s.name(), Class: describe(have.class), Revision: have.state.Revision}
	for _, t := range types {
		part, err := dumpType(have.state, t)
		if err != nil {
			return nil, err
		}
		dump.Configs = append(dump.Configs, part)
	}
	return dump, nil
}

// describe is a class in words.
func describe(c proxy.Class) string {
	words := []string{"namespace " + c.Namespace, "mode " + c.Mode.String()}
	if c.Sidecar.Name != "" {
		words = append(words, c.Sidecar.String())
	}
	return strings.Join(words, ", ")
}

// dumpTypes are the types a request asks for. Endpoints come only if asked for, as in Envoy.
func dumpTypes(r *http.Request) ([]resource.Type, error) {
	q := r.URL.Query()
	if !q.Has("types") {
		types := []resource.Type{resource.Cluster, resource.Listener, resource.Route}
		if q.Has("include_eds") {
			types = append(types, resource.Endpoint)
		}
		return types, nil
	}
	var types []resource.Type
	for _, word := range strings.Split(q.Get("types"), ",") {
		t, ok := resource.ParseKind(word)
		if !ok {
			return nil, refuse(http.StatusBadRequest, "%q is not a type; write some of cds, eds, lds, rds", word)
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types, nil
}

// dumpType is one of the parts of a config dump, as envoy.admin.v3 shapes it.
func dumpType(have *resource.State, t resource.Type) (map[string]any, error) {
	list := []any{}
	for r := range have.Layers(t).All() {
		body, err := render(r)
		if err != nil {
			return nil, err
		}
		switch t {
		case resource.Cluster:
			list = append(list, map[string]any{"version_info": r.Version(), "cluster": body})
		case resource.Endpoint:
			list = append(list, map[string]any{"version_info": r.Version(), "endpoint_config": body})
		case resource.Listener:
			list = append(list, map[string]any{"name": r.Name(), "active_state": map[string]any{"version_info": r.Version(), "listener": body}})
		case resource.Route:
			list = append(list, map[string]any{"version_info": r.Version(), "route_config": body})
		}
	}
	switch t {
	case resource.Cluster:
		return part("ClustersConfigDump", "dynamic_active_clusters", list), nil
	case resource.Endpoint:
		return part("EndpointsConfigDump", "dynamic_endpoint_configs", list), nil
	case resource.Listener:
		return part("ListenersConfigDump", "dynamic_listeners", list), nil
	case resource.Route:
		return part("RoutesConfigDump", "dynamic_route_configs", list), nil
	}
	return nil, fmt.Errorf("type %d has no dump", t)
}

func part(message, field string, list []any) map[string]any {
	return map[string]any{"@type": "type.googleapis.com/envoy.admin.v3." + message, field: list}
}

// render is a resource as JSON with its type. A resource that cannot be shown says so in its place: the others can.
func render(r *resource.Resource) (json.RawMessage, error) {
	msg, err := r.Proto()
	if err != nil {
		return nil, fmt.Errorf("showing %s %q: %w", r.Type(), r.Name(), err)
	}
	body, err := messageJSON(msg)
	if err != nil {
		return json.Marshal(map[string]string{"name": r.Name(), "error": err.Error()})
	}
	head, err := json.Marshal(map[string]string{"@type": r.Type().URL()})
	if err != nil || len(body) <= len("{}") {
		return head, err
	}
	return slices.Concat(head[:len(head)-1], []byte(","), body[1:]), nil
}

// messageJSON is a message in protobuf's JSON, with the field names of its definition.
func messageJSON(msg proto.Message) (json.RawMessage, error) {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(msg)
	if err != nil {
		return nil, errors.Join(errors.New("the message cannot be shown as JSON"), err)
	}
	return body, nil
}
