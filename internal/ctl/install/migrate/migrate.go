// Package migrate says what of a mesh of Istio behaves differently on Pilot: objects and fields without effect, objects that are refused, settings of
// the control plane, and the pages about different decisions.
//
// It owns the form of findings and decides nothing: the tables of supported fields (package api), of variables (package config, through its caller) and of kinds decide.
//
// Invariants: it changes nothing on a cluster, and reads no Secrets. Goroutines: the package starts none.
package migrate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

// Effect is what becomes of something on Pilot.
type Effect string

// The effects.
const (
	// Refused: the whole object has no effect.
	Refused Effect = "refused"
	// Ignored: a field, label, variable or object has no effect.
	Ignored Effect = "ignored"
	// Differs: it has an effect, and some of it was decided otherwise.
	Differs Effect = "differs"
)

// Finding is a difference between Istio and Pilot for a mesh.
type Finding struct {
	Effect Effect `json:"effect"`
	// Object is KIND NAMESPACE/NAME, or what else it is about; Field and Position are empty if they are not known.
	Object   string    `json:"object"`
	Field    string    `json:"field,omitempty"`
	Position string    `json:"position,omitempty"`
	Reason   string    `json:"reason"`
	Code     code.Code `json:"code,omitempty"`
	// Remedy is what to change before the move.
	Remedy string `json:"remedy"`
	Page   string `json:"page,omitempty"`
}

// Mesh collects the configuration of a mesh.
type Mesh struct {
	// Analysis reads the documents.
	Analysis *analyze.Analysis
	found    []Finding
	kinds    map[string]bool
	inert    func(environ []string) []string
}

// New returns an empty mesh. inert returns a remark for each variable of a control plane, NAME=VALUE, that has no effect; a remark begins with the name
// or with NAME=VALUE.
func New(inert func(environ []string) []string) *Mesh {
	return &Mesh{Analysis: analyze.New(), kinds: map[string]bool{}, inert: inert}
}

// manifest has the fields of a document that are read besides its configuration.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
	Spec       struct {
		Template struct {
			Spec struct {
				Containers []container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type container struct {
	Name string `json:"name"`
	Env  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// File adds a file of documents.
func (m *Mesh) File(name string, data []byte) {
	m.Analysis.File(name, data)
	for _, text := range strings.Split("\n"+string(data), "\n---") {
		body, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			m.look(name, body)
		}
	}
}

// look looks at a document, or at the documents of a list.
func (m *Mesh) look(name string, body []byte) {
	var o manifest
	if json.Unmarshal(body, &o) != nil {
		return
	}
	for _, item := range o.Items {
		m.look(name, item)
	}
	group, _, _ := strings.Cut(o.APIVersion, "/")
	own, _ := o.Metadata["name"].(string)
	switch {
	case strings.HasSuffix(group, ".istio.io") || o.Kind == "Ingress":
		m.kinds[o.Kind] = true
	case o.Kind == "DaemonSet" && own == "ztunnel":
		m.found = append(m.found, Finding{
			Effect: Ignored, Object: "DaemonSet ztunnel", Reason: "ambient mode is not supported: only sidecars and gateways carry traffic",
			Remedy: "give the workloads of ambient namespaces sidecars, and remove the label istio.io/dataplane-mode", Page: "doc/differences.md",
		})
	case o.Kind == "Deployment":
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Name == "discovery" {
				m.variables(name, own, c)
			}
		}
	}
}

// variables adds the variables of a control plane without effect.
func (m *Mesh) variables(file, deployment string, c container) {
	var environ []string
	for _, e := range c.Env {
		environ = append(environ, e.Name+"="+e.Value)
	}
	for _, remark := range m.inert(environ) {
		variable, _, _ := strings.Cut(remark, " ")
		variable, _, _ = strings.Cut(variable, "=")
		m.found = append(m.found, Finding{
			Effect: Ignored, Object: "Deployment " + deployment, Field: "env." + variable, Position: file, Reason: remark,
			Remedy: "leave it out of the installation of Pilot, unless the page names another setting", Page: "doc/reference/istio-discovery.md",
		})
	}
}

// Findings returns what behaves differently, the worst first.
func (m *Mesh) Findings() []Finding {
	list := slices.Clone(m.found)
	for _, p := range m.Analysis.Problems() {
		if one, ok := ofProblem(p); ok {
			list = append(list, one)
		}
	}
	for _, area := range areas() {
		if slices.ContainsFunc(area.kinds, func(kind string) bool { return m.kinds[kind] }) {
			list = append(list, Finding{Effect: Differs, Object: area.what, Reason: "some of it was decided otherwise", Remedy: "read the page", Page: area.page})
		}
	}
	rank := map[Effect]int{Refused: 0, Ignored: 1, Differs: 2}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Effect], rank[b.Effect]), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Page, b.Page))
	})
	return list
}

// ofProblem is the finding of a problem. Problems that Istio has too are none.
func ofProblem(p api.Problem) (f Finding, ok bool) {
	f = Finding{Object: p.Object.String(), Field: p.Field, Position: p.Position.String(), Reason: p.Reason, Code: p.Code, Page: "doc/differences.md"}
	entry, _ := code.Find(p.Code)
	f.Remedy = entry.Remedy
	switch p.Code {
	case "field-unsupported", "kind-unsupported", "kind-unknown":
		f.Effect = Ignored
	case "syntax", "file-unreadable", "file-too-large", "policy-refused", "field-unknown", "field-invalid":
		if p.Severity != api.Error {
			return f, false
		}
		f.Effect, f.Page = Refused, "doc/differences/configuration.md"
	default:
		return f, false
	}
	return f, true
}

// area is a page about different decisions, with the kinds that it describes.
type area struct {
	what  string
	page  string
	kinds []string
}

func areas() []area {
	return []area{
		{"services and endpoints", "doc/differences/services.md", []string{api.KindServiceEntry, api.KindWorkloadEntry, api.KindWorkloadGroup, api.KindDestinationRule}},
		{"routes, clusters and listeners of sidecars", "doc/differences/traffic.md", []string{api.KindVirtualService, api.KindDestinationRule, api.KindSidecar}},
		{"gateways and Ingress", "doc/differences/gateways.md", []string{api.KindGateway, "Ingress"}},
		{"access policies and tokens", "doc/differences/access.md", []string{api.KindAuthorizationPolicy, api.KindRequestAuthentication, api.KindPeerAuthentication}},
		{"metrics, logs and traces", "doc/differences/telemetry.md", []string{api.KindTelemetry}},
		{"patches of EnvoyFilters", "doc/differences/patches.md", []string{api.KindEnvoyFilter}},
		{"WasmPlugins and TrafficExtensions", "doc/differences/extensions.md", []string{api.KindWasmPlugin, api.KindTrafficExtension}},
	}
}
