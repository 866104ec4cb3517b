// Package configdump reads the dump of a proxy's configuration, as Envoy's admin page /config_dump and the control plane's page of that name show it.
//
// It owns the tables of the resources in a dump, and the differences between two dumps. It knows the form of a dump only, and no message of
// Envoy: a dump with extensions that this program does not know can be read too.
//
// Invariant: what Read returns has no private keys, passwords and tokens; Redact replaces them. The package starts no goroutines.
package configdump

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of resources in a dump.
type Kind string

// The kinds, in the order in which they are shown.
const (
	Clusters  Kind = "clusters"
	Listeners Kind = "listeners"
	Routes    Kind = "routes"
	Endpoints Kind = "endpoints"
)

// Kinds are the kinds of resources that have a table.
func Kinds() []Kind { return []Kind{Clusters, Listeners, Routes, Endpoints} }

// Entry is a resource in a dump.
type Entry struct {
	Name string
	// State is "active", or why the proxy does not use the resource: "warming", "draining" or "rejected".
	State string
	// Static is true if the resource is a part of the bootstrap.
	Static bool
	// Body is the resource as JSON.
	Body map[string]any
}

// Dump is the content of a dump.
type Dump struct {
	// Proxy is the name of the proxy, if the dump has it.
	Proxy string
	// Entries are sorted by name.
	Entries map[Kind][]Entry
	Secrets []Secret
	// Bootstrap is the configuration that Envoy was started with; nil if the dump has none.
	Bootstrap map[string]any
}

// The states of an entry.
const (
	active   = "active"
	warming  = "warming"
	draining = "draining"
	rejected = "rejected"
)

// Read reads a dump.
func Read(data []byte) (*Dump, error) {
	var file struct {
		Proxy   string           `json:"proxy"`
		Configs []map[string]any `json:"configs"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("it is no config dump: %w; write one with curl http://127.0.0.1:15000/config_dump?include_eds", err)
	}
	if len(file.Configs) == 0 {
		return nil, errors.New("it is no config dump: it has no configs; write one with curl http://127.0.0.1:15000/config_dump?include_eds")
	}
	d := &Dump{Proxy: file.Proxy, Entries: map[Kind][]Entry{}}
	for _, part := range file.Configs {
		d.section(part)
	}
	for _, list := range d.Entries {
		slices.SortStableFunc(list, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.State, b.State)) })
	}
	slices.SortStableFunc(d.Secrets, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return d, nil
}

// section adds a section of a dump. Sections of other kinds are not looked at.
func (d *Dump) section(part map[string]any) {
	kind := text(part, "@type")
	switch kind[strings.LastIndexByte(kind, '.')+1:] {
	case "BootstrapConfigDump":
		d.Bootstrap, _ = Redact(part["bootstrap"]).(map[string]any)
	case "ClustersConfigDump":
		d.list(Clusters, part, "static_clusters", active, true, "cluster")
		d.list(Clusters, part, "dynamic_active_clusters", active, false, "cluster")
		d.list(Clusters, part, "dynamic_warming_clusters", warming, false, "cluster")
	case "ListenersConfigDump":
		d.list(Listeners, part, "static_listeners", active, true, "listener")
		for _, one := range objects(part["dynamic_listeners"]) {
			for state, field := range map[string]string{active: "active_state", warming: "warming_state", draining: "draining_state"} {
				d.add(Listeners, object(one[field])["listener"], state, false)
			}
			d.add(Listeners, object(one["error_state"])["failed_configuration"], rejected, false)
		}
	case "RoutesConfigDump":
		d.list(Routes, part, "static_route_configs", active, true, "route_config")
		d.list(Routes, part, "dynamic_route_configs", active, false, "route_config")
	case "EndpointsConfigDump":
		d.list(Endpoints, part, "static_endpoint_configs", active, true, "endpoint_config")
		d.list(Endpoints, part, "dynamic_endpoint_configs", active, false, "endpoint_config")
	case "SecretsConfigDump":
		for field, state := range map[string]string{"static_secrets": active, "dynamic_active_secrets": active, "dynamic_warming_secrets": warming} {
			for _, one := range objects(part[field]) {
				d.Secrets = append(d.Secrets, secret(one, state))
			}
		}
	}
}

// list adds the resources of a field of a section. within is the field of the resource.
func (d *Dump) list(k Kind, part map[string]any, field, state string, static bool, within string) {
	for _, one := range objects(part[field]) {
		d.add(k, one[within], state, static)
	}
}

func (d *Dump) add(k Kind, body any, state string, static bool) {
	fields, ok := Redact(body).(map[string]any)
	if !ok {
		return
	}
	name := text(fields, "name")
	if k == Endpoints {
		name = text(fields, "cluster_name")
	}
	d.Entries[k] = append(d.Entries[k], Entry{Name: name, State: state, Static: static, Body: fields})
}

// Only returns the entries of a kind that a filter selects.
func (d *Dump) Only(k Kind, f Filter) []Entry {
	var list []Entry
	for _, e := range d.Entries[k] {
		if f.selects(k, e) {
			list = append(list, e)
		}
	}
	return list
}

// Secret describes a secret without its keys.
type Secret struct {
	Name string `json:"name"`
	// Type is "certificate" for a certificate with its key, "roots", or "other".
	Type string `json:"type"`
	// State is "active", or "warming" if Envoy waits for the secret.
	State string `json:"state"`
	// Certificates are the first certificate of a chain, or all roots.
	Certificates []Certificate `json:"certificates,omitempty"`
	// Remark says why no certificate is shown.
	Remark string `json:"remark,omitempty"`
}

// Certificate is what a certificate says of itself.
type Certificate struct {
	Serial    string    `json:"serial"`
	Subject   string    `json:"subject,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// text returns a field that is a string; empty if it is none.
func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// object returns a value that is a JSON object; nil if it is none.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// objects returns the JSON objects in a list.
func objects(v any) (list []map[string]any) {
	all, _ := v.([]any)
	for _, one := range all {
		if m := object(one); m != nil {
			list = append(list, m)
		}
	}
	return list
}

// at returns the object at a path of fields.
func at(m map[string]any, path ...string) map[string]any {
	for _, field := range path {
		m = object(m[field])
	}
	return m
}

// number returns a field that is a number as text; empty if it is none.
func number(m map[string]any, field string) string {
	n, ok := m[field].(float64)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f", n)
}
