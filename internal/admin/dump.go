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

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// configDump returns the configuration for a proxy in the form of Envoy's admin page /config_dump, so tools for that page can read
// it. It includes content that is held back because the proxy rejected it; syncz lists that content. Of a sidecar with hosts on demand, it has the hosts
// and clusters that the sidecar has asked for.
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
		asked *class.Asked // nil unless the proxy gets hosts on demand
	}
	have, err := inspect(r, p, func(v *loop.View) found {
		of, ok := v.Class(s.Attachment)
		if !ok {
			return found{}
		}
		asked, _ := v.Queries.AskedBy(v.Graph.Glance(), s.Attachment)
		return found{of, v.State(of), asked}
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
		part, err := dumpType(have.state, have.asked, t)
		if err != nil {
			return nil, err
		}
		dump.Configs = append(dump.Configs, part)
	}
	return dump, nil
}

// describe returns a class as text.
func describe(c proxy.Class) string {
	words := []string{"namespace " + c.Namespace, "mode " + c.Mode.String()}
	if c.Sidecar.Name != "" {
		words = append(words, c.Sidecar.String())
	}
	return strings.Join(words, ", ")
}

// dumpTypes returns the types in the dump. Endpoints are included only on request, as in Envoy.
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

// dumpType returns one section of a config dump, in the form of envoy.admin.v3.
func dumpType(have *resource.State, asked *class.Asked, t resource.Type) (map[string]any, error) {
	list := []any{}
	for r := range have.Layers(t).All() {
		if (t == resource.Cluster || t == resource.Endpoint) && !asked.HasCluster(r.Name()) {
			continue
		}
		msg, version, err := asked.Message(r)
		if err != nil {
			return nil, fmt.Errorf("showing %s %q: %w", r.Type(), r.Name(), err)
		}
		body, err := render(r, msg)
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
			list = append(list, map[string]any{"version_info": version, "route_config": body})
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

// render returns a resource as JSON with its type. If that fails, it returns the error in place of this resource.
func render(r *resource.Resource, msg proto.Message) (json.RawMessage, error) {
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

// messageJSON returns a message as protobuf JSON, with the field names of its definition.
func messageJSON(msg proto.Message) (json.RawMessage, error) {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(msg)
	if err != nil {
		return nil, errors.Join(errors.New("the message cannot be shown as JSON"), err)
	}
	return body, nil
}
