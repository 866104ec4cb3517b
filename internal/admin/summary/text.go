package summary

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write writes a summary as text.
func (s *Summary) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }
	line("%s %s.%s", s.Kind, s.Name, s.Namespace)
	if p := s.Proxy; p != nil {
		var states []string
		for _, kind := range slices.Sorted(maps.Keys(p.States)) {
			states = append(states, fmt.Sprintf("%s %s", kind, p.States[kind]))
		}
		line("  proxy\t%s", strings.Join(states, ", "))
		line("  versions\tagent %s, Envoy %s", p.Version, p.Envoy)
		if p.Sidecar != nil {
			line("  sidecar\t%s%s: it limits what the proxy sees", place(*p.Sidecar), p.Sidecar.Key())
		}
	} else if s.Viewer != "" {
		line("  seen by\t%s", s.Viewer)
	}
	for _, one := range s.Services {
		one.write(line)
	}
	if len(s.Problems) > 0 {
		line("\nProblems")
	}
	for _, text := range s.Problems {
		line("  %s", text)
	}
	return t.Flush()
}

func (s Service) write(line func(string, ...any)) {
	line("\nservice %s", s.Host)
	line("  endpoints\t%d, %d with a connected proxy", s.Endpoints, s.Connected)
	for _, p := range s.Ports {
		p.write(line)
	}
	for _, r := range s.Rules {
		name, unused := r.Object.Key().String(), ""
		if r.Object.Name == "" {
			name = r.Object.Kind
		}
		if r.Unused != "" {
			unused = ", not used: " + r.Unused
		}
		line("  %s\t%s%s%s", r.Role, place(r.Object), name, unused)
	}
	for _, g := range s.Gateways {
		match := g.Match
		if match == "" {
			match = "all requests"
		}
		line("  gateway\t%s:%d, %s: %s, by %s", g.Host, g.Port, match, g.Owner.Key(), g.Rule.Key())
	}
	if len(s.Gateways) == 0 {
		line("  gateway\tnone leads to it")
	}
}

func (p Port) write(line func(string, ...any)) {
	title := fmt.Sprintf("%d", p.Number)
	if p.Name != "" {
		title += " " + p.Name
	}
	title += " (" + p.Protocol + ")"
	if p.Target != 0 {
		title += fmt.Sprintf(", port %d of the workload", p.Target)
	}
	line("  port\t%s", title)
	for _, d := range p.Destinations {
		line("    goes to\t%s", d)
	}
	if p.Mode != "" {
		line("    mutual TLS\t%s (at %s)", p.Mode, p.Workload)
	}
	for _, one := range p.Policies {
		line("    policy\t%s%s %s, %s", place(one.Object), one.Action, one.Object.Key(), one)
	}
}
