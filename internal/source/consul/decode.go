package consul

import (
	"cmp"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// own is the service of Consul's servers themselves.
const own = "consul"

// suffix is the suffix of hosts if the file has none.
const suffix = "service.consul"

// entry is an element of /v1/health/service/NAME.
type entry struct {
	Node struct {
		Node, Address, Datacenter string
		Meta                      map[string]string
	}
	Service struct {
		ID, Service, Address, Kind, SocketPath string
		Port                                   int
		Tags                                   []string
		Meta                                   map[string]string
		Weights                                *struct{ Passing, Warning int }
		Locality                               *struct{ Region, Zone string }
	}
	Checks []struct{ CheckID, Status string }
}

// decodeNames reads /v1/catalog/services: the names of services with their tags.
func decodeNames(body []byte) (names []string, self bool, err error) {
	s := scan(body)
	var name []byte
	err = s.object(func(quoted []byte) (err error) {
		if name, err = jsontext.AppendUnquote(name[:0], quoted); err != nil {
			return err
		}
		if string(name) == own {
			self = true
		} else if len(name) > 0 {
			names = append(names, string(name))
		}
		return s.SkipValue()
	})
	if err != nil {
		return nil, false, fmt.Errorf("/v1/catalog/services: %w", err)
	}
	slices.Sort(names)
	return names, self, nil
}

// decode reads /v1/health/service/NAME. What cannot be read costs itself only.
func decode(name string, body []byte, onlyPassing bool) (*registries.Service, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("/v1/health/service/%s: %w", name, err)
	}
	s := &registries.Service{HostName: name, Suffix: suffix, Protocol: "tcp"}
	for i, raw := range all {
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			s.Unread = append(s.Unread, registries.Remark{Place: fmt.Sprintf("%s[%d]", name, i), Reason: fmt.Sprintf("it cannot be read: %v", err)})
			continue
		}
		if e.Service.Kind != "" {
			continue // a proxy or a gateway
		}
		s.Instances = append(s.Instances, e.instance(onlyPassing))
	}
	slices.SortFunc(s.Instances, func(a, b registries.Instance) int { return strings.Compare(a.ID, b.ID) })
	return s, nil
}

func (e *entry) instance(onlyPassing bool) registries.Instance {
	labels := e.labels()
	in := registries.Instance{
		ID: e.Node.Node + "/" + e.Service.ID, Address: cmp.Or(e.Service.Address, e.Node.Address), Labels: labels, External: e.Service.Meta["external"] != "",
	}
	if e.Service.Port > 0 && e.Service.Port < 1<<16 && e.Service.SocketPath == "" {
		in.Ports = []registries.Port{{Number: uint32(e.Service.Port), Protocol: cmp.Or(e.Service.Meta["protocol"], labels["protocol"])}}
	}
	passing, warning := 1, 1
	if w := e.Service.Weights; w != nil {
		passing, warning = w.Passing, w.Warning
	}
	in.Weight = strconv.Itoa(passing)
	for _, c := range e.Checks {
		switch {
		case c.Status == "passing":
		case c.Status == "warning" && !onlyPassing:
			in.Weight = strconv.Itoa(warning)
		case in.Down == "":
			in.Down = fmt.Sprintf("check %s is %s", c.CheckID, cmp.Or(c.Status, "without a status"))
		}
	}
	if l := e.Service.Locality; l != nil && l.Region+l.Zone != "" {
		in.Locality = mesh.Locality{Region: l.Region, Zone: l.Zone}
	} else {
		in.Locality = mesh.Locality{Region: e.Node.Datacenter, Zone: cmp.Or(e.Service.Meta["zone"], e.Node.Meta["zone"])}
	}
	return in
}

// labels are the metadata of the service and its tags. Tags with a key and a value go before metadata.
func (e *entry) labels() map[string]string {
	labels := make(map[string]string, len(e.Service.Meta)+len(e.Service.Tags))
	for k, v := range e.Service.Meta {
		labels[k] = v
	}
	for _, tag := range e.Service.Tags {
		key, value, ok := strings.Cut(tag, "|")
		if !ok {
			key, value, ok = strings.Cut(tag, "=")
		}
		if !ok {
			key, value = "consul-tag/"+tag, "true"
		}
		labels[key] = value
	}
	return labels
}
