package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/run/template"
)

// absent is what a template prints for a value that does not exist.
const absent = "<no value>"

// values are the values that a template may use. Names that Istio's templates have too mean the same. bootstrap is the built-in bootstrap,
// as a tree with Envoy's names of fields.
func (c Config) values() (map[string]any, error) {
	text, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(c.Message())
	if err != nil {
		return nil, err
	}
	var bootstrap map[string]any
	if err := json.Unmarshal(text, &bootstrap); err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(c.Node.GetMetadata().AsMap())
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"bootstrap": bootstrap, "config": c.Proxy,
		"nodeID": c.Node.GetId(), "cluster": c.Node.GetCluster(), "meta_json_str": string(metadata),
		"region": c.Node.GetLocality().GetRegion(), "zone": c.Node.GetLocality().GetZone(), "sub_zone": c.Node.GetLocality().GetSubZone(),
		"localhost": c.loopback(), "wildcard": c.wildcard(), "dns_lookup_family": c.lookupFamily(),
		"admin_port": c.AdminPort, "status_port": c.StatusPort, "envoy_status_port": c.HealthPort, "envoy_prometheus_port": c.MetricsPort,
		"xds_socket": c.Relay, "sds_socket": c.SecretsSocket,
	}, nil
}

func (c Config) lookupFamily() string {
	if c.IPv6 {
		return "V6_ONLY"
	}
	return "V4_ONLY"
}

// asJSON is the function toJSON of templates.
func asJSON(v any) (any, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// fromTemplate returns the bootstrap that follows from the template, as JSON. The template has the syntax of Go's text/template, and its
// result is JSON or YAML.
func (c Config) fromTemplate() ([]byte, error) {
	values, err := c.values()
	if err != nil {
		return nil, err
	}
	out, err := template.Render("template", c.Template, values, map[string]func(any) (any, error){"toJSON": asJSON, "toJson": asJSON})
	if err != nil {
		return nil, err
	}
	if before, _, found := strings.Cut(out, absent); found {
		return nil, fmt.Errorf("line %d of its result uses a value that does not exist", strings.Count(before, "\n")+1)
	}
	text, err := yaml.YAMLToJSON([]byte(out))
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	if err := c.checkAdmin(text); err != nil {
		return nil, err
	}
	return text, nil
}

// checkAdmin checks that Envoy's admin interface is where the agent expects it.
func (c Config) checkAdmin(text []byte) error {
	var b struct {
		Admin struct {
			Address struct {
				Socket struct {
					Port uint32 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"address"`
		} `json:"admin"`
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("its result is not a bootstrap: %w", err)
	}
	switch port := b.Admin.Address.Socket.Port; port {
	case c.AdminPort:
		return nil
	case 0:
		return errors.New("its result has no port of Envoy's admin interface (admin.address.socket_address.port_value), but the agent needs it to supervise Envoy")
	default:
		return fmt.Errorf("its result has the admin interface on port %d, but the agent expects it on %d; write {{.admin_port}}, or set proxyAdminPort", port, c.AdminPort)
	}
}
