package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// versionRules: versions identify content.
func versionRules() []rule {
	always := func(s *scene) { // the checks of every response, with many responses
		p := s.connect()
		s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3, "v1"), s.routes("a", "tag", "b"))
		s.fence(p)
		p.routed("tag")
	}
	return []rule{
		{name: "present", run: always},
		{name: "differs", run: versionDiffers},
		{name: "own", only: onlyDelta(), run: versionOwn},
		{name: "follows-content", only: onlyDelta(), wish: true, run: func(s *scene) {
			p := s.all()
			before := versions(p)
			s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3), s.routes("a", "tag", "b"))
			p.limited("a", 3)
			p.at("a", "10.1.0.11")
			p.routed("tag")
			s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"))
			p.at("a", "10.1.0.1")
			p.await("the route to go", func() bool { return !p.mentions(client.RDS, routeHTTP, "/tag/") })
			p.await("the policy to go", func() bool { return p.connections(s.cluster("a")) != 3 })
			for t, m := range versions(p) {
				for n, v := range m {
					if before[t][n] != v {
						s.Errorf("%s %q is as before and has another version", t, n)
					}
				}
			}
		}},
		{name: "name", only: onlyDelta(), run: always},
		{name: "no-ttl", run: always},
		{name: "control-plane", wish: true, run: func(s *scene) {
			p := s.all()
			s.fence(p)
			for _, r := range p.Log {
				if r.ControlPlane == "" {
					s.Fatalf("response does not name the control plane: %s", r)
				}
			}
		}},
		{name: "system", only: onlyDelta(), wish: true, run: func(s *scene) {
			p := s.all()
			s.fence(p)
			for _, r := range p.Log {
				if r.Version == "" {
					s.Fatalf("response has no system_version_info: %s", r)
				}
			}
		}},
	}
}

func versionOwn(s *scene) {
	p := s.all()
	before := versions(p)
	s.put(fileServices, s.a("10.1.0.11"), s.b("10.1.0.2"), s.policy("a", 3))
	p.limited("a", 3)
	p.at("a", "10.1.0.11")
	after := versions(s.all())
	for t, m := range before {
		for n, v := range m {
			if n != s.cluster("a") && after[t][n] != v {
				s.Errorf("%s %q has another version because %q changed", t, n, s.cluster("a"))
			}
		}
	}
	for _, t := range []client.Type{client.CDS, client.EDS} {
		if after[t][s.cluster("a")] == before[t][s.cluster("a")] {
			s.Errorf("%s %q changed and has the same version", t, s.cluster("a"))
		}
	}
}

// versions are the versions of everything a peer has.
func versions(p *peer) map[client.Type]map[string]string {
	all := map[client.Type]map[string]string{}
	for _, t := range client.All() {
		all[t] = maps.Clone(p.Versions(t))
	}
	return all
}

// versionDiffers: no two contents have the same version.
func versionDiffers(s *scene) {
	p := s.all()
	contents := map[string]string{} // by version, or by type and version_info
	for i := range 4 {
		s.put(fileServices, s.a(s.fenceAddress(i)), s.b("10.1.0.2"), s.policy("a", 3+i), s.routes("a", []string{"i", "ii", "iii", "iv"}[i], "b"))
		p.limited("a", 3+i)
		p.routed([]string{"i", "ii", "iii", "iv"}[i])
		p.at("a", s.fenceAddress(i))
	}
	for _, r := range p.Log {
		if s.variant == client.SotW {
			// A response of assignments or routes may hold a part: its version is compared with itself only.
			key := r.Type.String() + r.Version
			var all strings.Builder
			for _, n := range slices.Sorted(maps.Keys(bodies(r))) {
				all.WriteString(n + "\x00" + bodies(r)[n] + "\x00")
			}
			if r.Type.Wildcard() {
				s.sameVersion(contents, key, all.String())
			}
			continue
		}
		for n, body := range bodies(r) {
			s.sameVersion(contents, r.Type.String()+n+r.Get(n).Version, body)
		}
	}
	if s.variant == client.SotW {
		s.versionsMove(p)
	}
}

func bodies(r *client.Response) map[string]string {
	m := map[string]string{}
	for _, res := range r.Resources {
		m[res.Name] = string(res.Body)
	}
	return m
}

func (s *scene) sameVersion(contents map[string]string, key, body string) {
	s.Helper()
	if old, ok := contents[key]; ok && old != body {
		s.Errorf("two contents have one version: %.80q", key)
	}
	contents[key] = body
}

// versionsMove checks that a response that changes something has another version than the one before it.
func (s *scene) versionsMove(p *peer) {
	s.Helper()
	var last [client.Types]string
	for _, r := range p.Log {
		if len(r.Put)+len(r.Gone) > 0 && r.Version == last[r.Type] {
			s.Errorf("the version stays while content changes: %s", r)
		}
		last[r.Type] = r.Version
	}
}
