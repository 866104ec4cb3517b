package meshtest

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Validate runs the generated validation over everything a state holds, and checks for errors that make Envoy refuse a
// whole resource: references to nothing, and names, domains, addresses or filter chain matches that come twice.
func Validate(t T, s *resource.State) {
	t.Helper()
	addresses := map[string]string{}
	for typ := range resource.Type(resource.Types) {
		for r := range s.Layers(typ).All() {
			m, err := r.Proto()
			if err != nil {
				t.Error(err)
				continue
			}
			if typ == resource.NameTable || typ == resource.Bootstrap {
				continue // their packages have rules of their own: patches of a bootstrap are a part of one
			}
			if err := valid(m); err != nil {
				t.Errorf("%v %q: %v", typ, r.Name(), err)
			}
			switch m := m.(type) {
			case *routev3.RouteConfiguration:
				checkVirtualHosts(t, m)
			case *listenerv3.Listener:
				checkListener(t, m)
				at := m.Address.String()
				if other, ok := addresses[at]; ok {
					t.Errorf("listeners %q and %q have the same address", other, m.Name)
				}
				addresses[at] = m.Name
			}
		}
	}
	for l := range s.Layers(resource.Listener).All() {
		for _, name := range l.Refs() {
			if _, ok := s.Get(resource.Route, name); !ok {
				t.Errorf("listener %q names route configuration %q, which does not exist", l.Name(), name)
			}
		}
	}
	for c := range s.Layers(resource.Cluster).All() {
		if name, ok := c.EDS(); ok {
			if _, ok := s.Get(resource.Endpoint, name); !ok {
				t.Errorf("cluster %q fetches assignment %q, which does not exist", c.Name(), name)
			}
		}
	}
}

// valid runs the validation that was generated for a message.
func valid(m proto.Message) error {
	v, ok := m.(interface{ ValidateAll() error })
	if !ok {
		return fmt.Errorf("%T has no validation", m)
	}
	return v.ValidateAll()
}

func checkVirtualHosts(t T, rc *routev3.RouteConfiguration) {
	names, domains := map[string]bool{}, map[string]string{}
	for _, vh := range rc.VirtualHosts {
		if names[vh.Name] {
			t.Errorf("route configuration %q: two virtual hosts are called %q", rc.Name, vh.Name)
		}
		names[vh.Name] = true
		if len(vh.Domains) == 0 {
			t.Errorf("route configuration %q: virtual host %q has no domain", rc.Name, vh.Name)
		}
		for _, d := range vh.Domains {
			d = strings.ToLower(d)
			if other, ok := domains[d]; ok {
				t.Errorf("route configuration %q: virtual hosts %q and %q share the domain %q", rc.Name, other, vh.Name, d)
			}
			domains[d] = vh.Name
		}
	}
}

// checkListener finds filter chains for the same connections. Envoy takes each combination of what a match lists as a match
// of its own.
func checkListener(t T, l *listenerv3.Listener) {
	seen := map[string]int{}
	if l.FilterChainMatcher != nil {
		return // the chains have no matches of their own; Envoy checks the rule
	}
	for i, c := range l.FilterChains {
		for _, m := range combinations(c.GetFilterChainMatch()) {
			if other, ok := seen[m]; ok {
				t.Errorf("listener %q: filter chains %d and %d match the same connections: %s", l.Name, other, i, m)
			}
			seen[m] = i
		}
	}
}

func combinations(m *listenerv3.FilterChainMatch) []string {
	out := []string{fmt.Sprintf("port %v transport %q source %v", m.GetDestinationPort().GetValue(), m.GetTransportProtocol(), m.GetSourceType())}
	for _, list := range [][]string{
		blocks(m.GetPrefixRanges()), m.GetServerNames(), m.GetApplicationProtocols(), blocks(m.GetSourcePrefixRanges()),
		blocks(m.GetDirectSourcePrefixRanges()), numbers(m.GetSourcePorts()),
	} {
		if len(list) == 0 {
			list = []string{"any"}
		}
		var next []string
		for _, part := range out {
			for _, one := range slices.Compact(slices.Sorted(slices.Values(list))) { // one chain may say it twice
				next = append(next, part+", "+one)
			}
		}
		out = next
	}
	return out
}

func blocks(list []*corev3.CidrRange) (out []string) {
	for _, b := range list {
		out = append(out, fmt.Sprintf("%s/%d", b.AddressPrefix, b.PrefixLen.GetValue()))
	}
	return out
}

func numbers(list []uint32) (out []string) {
	for _, n := range list {
		out = append(out, fmt.Sprint(n))
	}
	return out
}
