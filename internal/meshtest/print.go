package meshtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Print renders the resources of a state that keep lets through, as YAML that is stable from run to run.
func Print(t T, s *resource.State, keep func(t resource.Type, name string) bool) string {
	t.Helper()
	var out strings.Builder
	for typ := range resource.Type(resource.Types) {
		for r := range s.Layers(typ).All() {
			if !keep(typ, r.Name()) {
				continue
			}
			fmt.Fprintf(&out, "# %v %s\n%s", typ, r.Name(), YAML(t, r))
		}
	}
	return out.String()
}

// YAML renders one resource.
func YAML(t T, r *resource.Resource) string {
	t.Helper()
	m, err := r.Proto()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var tidy bytes.Buffer // protojson varies its spaces on purpose
	if err := json.Compact(&tidy, raw); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.JSONToYAML(tidy.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Names lists the names of a state's resources of one type.
func Names(s *resource.State, typ resource.Type) []string {
	var names []string
	for r := range s.Layers(typ).All() {
		names = append(names, r.Name())
	}
	slices.Sort(names)
	return names
}

// Domains lists the virtual hosts of a state's route configurations with their domains, a line each.
func Domains(t T, s *resource.State) string {
	t.Helper()
	var out strings.Builder
	for r := range s.Layers(resource.Route).All() {
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		for _, vh := range m.(*routev3.RouteConfiguration).VirtualHosts {
			fmt.Fprintf(&out, "%s: %s: %s\n", r.Name(), vh.Name, strings.Join(vh.Domains, " "))
		}
	}
	return out.String()
}

// chains lists how connections to the workload are handled: the filter chains of inbound listeners, a line each, and
// the ports where TLS and HTTP are detected.
func chains(t T, s *resource.State) string {
	t.Helper()
	var out strings.Builder
	for r := range s.Layers(resource.Listener).All() {
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		l := m.(*listenerv3.Listener)
		if l.TrafficDirection != envoy.Inbound {
			continue
		}
		for _, c := range reply.InboundChains(l) {
			fmt.Fprintf(&out, "%s: %s\n", l.Name, c)
		}
		for _, f := range l.ListenerFilters {
			name := f.Name[strings.LastIndex(f.Name, ".")+1:]
			if strings.HasSuffix(name, "inspector") {
				fmt.Fprintf(&out, "%s: %s%s\n", l.Name, name, notOn(f.FilterDisabled))
			}
		}
	}
	return out.String()
}

// notOn describes the connections that a listener filter is disabled for.
func notOn(p *listenerv3.ListenerFilterChainMatchPredicate) string {
	switch r := p.GetRule().(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return ", only" + strings.TrimPrefix(notOn(r.NotMatch), ", not")
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		return fmt.Sprintf(", not on %d", r.DestinationPortRange.Start)
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		var ports []string
		for _, one := range r.OrMatch.Rules {
			ports = append(ports, fmt.Sprint(one.GetDestinationPortRange().GetStart()))
		}
		return ", not on " + strings.Join(ports, " ")
	}
	return ""
}
