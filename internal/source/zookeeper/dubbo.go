package zookeeper

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source/dubbo"
	"github.com/pilotmesh/pilot/internal/source/registries"
)

// parseProvider reads the name of a node below an interface: a URL that is escaped once. ok is false if it is no provider.
func parseProvider(node string) (p dubbo.Provider, ok bool, err error) {
	text, err := url.QueryUnescape(node)
	if err != nil {
		return dubbo.Provider{}, false, fmt.Errorf("it is no escaped URL: %w", err)
	}
	u, err := url.Parse(text)
	if err != nil {
		return dubbo.Provider{}, false, fmt.Errorf("it is no URL: %w", err)
	}
	switch u.Scheme {
	case "empty", "consumer", "override", "route", "condition", "script", "admin":
		return dubbo.Provider{}, false, nil
	case "":
		return dubbo.Provider{}, false, fmt.Errorf("the URL %q has no protocol", text)
	}
	p = dubbo.Provider{Scheme: u.Scheme, Address: u.Hostname(), Params: map[string]string{}}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || n == 0 {
		return dubbo.Provider{}, false, fmt.Errorf("the URL has no valid port: %q", u.Host)
	}
	p.Port = uint32(n)
	for key, values := range u.Query() {
		p.Params[key] = values[0]
	}
	return p, true, nil
}

// application is a node of an instance of an application, as Curator writes it.
type application struct {
	ID      string
	Address string
	Port    *uint32
	SSLPort *uint32 `json:"sslPort"`
	Payload json.RawMessage
}

// registered is an instance of an application.
type registered struct {
	instance registries.Instance
	// revision is the revision of its metadata in ZooKeeper; empty if there is none.
	revision string
}

// parseApplication reads the content of such a node.
func parseApplication(id string, data []byte) (registered, error) {
	var a application
	if err := json.Unmarshal(data, &a); err != nil {
		return registered{}, fmt.Errorf("it cannot be read: %w", err)
	}
	var payload struct{ Metadata map[string]any }
	if len(a.Payload) > 0 && a.Payload[0] == '{' {
		if err := json.Unmarshal(a.Payload, &payload); err != nil {
			return registered{}, fmt.Errorf("its payload cannot be read: %w", err)
		}
	}
	metadata := make(map[string]string, len(payload.Metadata))
	for k, v := range payload.Metadata {
		if text, ok := v.(string); ok {
			metadata[k] = text
		}
	}
	r := registered{instance: registries.Instance{ID: id, Address: a.Address, Labels: dubbo.Labels(metadata), Weight: metadata["weight"]}}
	r.instance.Ports = a.ports(metadata)
	if status := cmp.Or(metadata["instance_status"], "UP"); status != "UP" {
		r.instance.Down = "instance_status is " + status
	}
	if metadata["dubbo.metadata.storage-type"] == "remote" && metadata["dubbo.metadata.revision"] != "0" {
		r.revision = metadata["dubbo.metadata.revision"]
	}
	return r, nil
}

// ports returns the ports of an instance of an application. One of Dubbo lists them with their protocols.
func (a *application) ports(metadata map[string]string) (ports []registries.Port) {
	var list []struct {
		Port     uint32
		Protocol string
	}
	if json.Unmarshal([]byte(metadata["dubbo.endpoints"]), &list) == nil && len(list) > 0 {
		for _, e := range list {
			protocol := dubbo.Protocol(e.Protocol, metadata)
			if protocol == mesh.Dubbo.String() {
				protocol = "tcp" // an application has no one interface by which calls could be routed
			}
			ports = append(ports, registries.Port{Number: e.Port, Protocol: protocol})
		}
		return ports
	}
	if a.Port != nil && *a.Port != 0 {
		ports = append(ports, registries.Port{Number: *a.Port})
	}
	if a.SSLPort != nil && *a.SSLPort != 0 {
		ports = append(ports, registries.Port{Number: *a.SSLPort, Protocol: "https"})
	}
	return ports
}

// exported is an interface in the metadata of a revision of an application.
type exported struct {
	Name, Group, Version, Protocol string
	Port                           uint32
	Params                         map[string]string
}

// parseMetadata reads the metadata of a revision.
func parseMetadata(data []byte) ([]exported, error) {
	var m struct{ Services map[string]exported }
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("the metadata cannot be read: %w", err)
	}
	list := make([]exported, 0, len(m.Services))
	for _, e := range m.Services {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b exported) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return list, nil
}

// at returns the interface as it is served by an instance of the application.
func (e exported) at(in registries.Instance) (mesh.DubboInterface, registries.Instance) {
	params := map[string]string{"group": e.Group, "version": e.Version}
	for k, v := range e.Params {
		params[k] = v
	}
	for k, v := range params {
		if v == "" {
			delete(params, k)
		}
	}
	out := dubbo.Provider{Scheme: e.Protocol, Address: in.Address, Port: e.Port, Params: params}.Instance()
	out.Down = cmp.Or(in.Down, out.Down)
	return dubbo.Interface(e.Name, params), out
}
