package conformance

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// contentRules: every response of every test is checked for most of these (see client.Checker). Here a mesh with some of
// everything is looked at for one rule at a time, so that the rule has a test with its name.
func contentRules() []rule {
	var rules []rule
	for _, name := range []string{"valid", "known-types", "stock-envoy", "no-duplicates", "envoy-rejects", "names", "ads"} {
		rules = append(rules, rule{name: name, run: func(s *scene) {
			s.rich()
			p := s.connect()
			s.richly(p)
			s.fence(p)
			for _, c := range p.Collisions() {
				if name == "envoy-rejects" {
					s.Error(c)
				}
			}
		}})
	}
	return append(rules,
		rule{name: "closure", run: func(s *scene) {
			s.rich()
			p := s.connect()
			s.richly(p)
			s.fence(p)
			for _, l := range p.Loose() {
				s.Error(l)
			}
		}},
		rule{name: "eds-name", run: func(s *scene) {
			s.rich()
			p := s.connect()
			s.richly(p)
			names, _ := p.Asked(client.EDS)
			s.sameNames("assignments", p.Names(client.EDS), names)
		}},
		rule{name: "router", run: contentRouter},
		rule{name: "interception-none", run: func(s *scene) {
			s.rich()
			n := node("plain", s.ns)
			n.Metadata.Fields["INTERCEPTION_MODE"] = structpb.NewStringValue("NONE")
			p := s.connect(as(n))
			p.has(client.CDS, s.cluster("a"), s.subset("a", "v1"))
			s.put("edit.yaml", s.routes("b", "tag", "a/v1"))
			p.routed("tag")
			p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
			for _, c := range p.Collisions() {
				s.Error(c)
			}
		}},
	)
}

func contentRouter(s *scene) {
	s.rich()
	n := node("gateway", s.ns)
	n.Id = fmt.Sprintf("router~10.0.0.9~gateway.%s~%[1]s.svc.cluster.local", s.ns)
	p := s.open(follows, as(n))
	p.subscribe(client.CDS)
	p.subscribe(client.LDS)
	p.await("clusters, and answers for listeners", func() bool {
		return p.Get(client.CDS, s.cluster("a")) != nil && len(p.Loose()) == 0 && slices.ContainsFunc(p.Log, func(r *client.Response) bool { return r.Type == client.LDS })
	})
	for _, c := range p.Collisions() {
		s.Error(c)
	}
}

// rich writes a mesh with some of everything. The peers' own address is among the endpoints: they serve as well.
func (s *scene) rich() {
	s.Helper()
	port := func(number int, protocol string) string {
		return fmt.Sprintf("{number: %d, name: p%d, protocol: %s}", number, number, protocol)
	}
	docs := []string{
		s.service(service{name: "own", ports: port(8080, "HTTP") + ", " + port(8081, "TCP") + ", " + port(8082, "GRPC"), endpoints: []string{"10.0.0.1"}}),
		s.service(service{name: "many", vip: "240.240.2.1", ports: port(80, "HTTP") + ", " + port(82, "HTTP2") + ", " + port(83, "GRPC") + ", " + port(9443, "TCP") + ", " + port(9444, "TLS") + ", " + port(9445, "HTTPS")}),
		s.service(service{name: "bare", ports: port(9100, "TCP")}),
		s.service(service{name: "bare-too", ports: port(9100, "TCP")}),
		s.service(service{name: "twin", ports: port(9000, "TCP"), vip: vipT}), // the address and port of t
		s.service(service{name: "mixed", ports: port(9000, "HTTP"), vip: "240.240.2.2"}),
		s.service(service{name: "versions", endpoints: []string{"10.1.1.1 v1", "10.1.1.2 v2", "10.1.1.3 v3"}}),
		s.service(service{name: "upper", host: "UPPER." + s.ns + ".test"}),
		s.policy("a", 5, "v1", "v2"),
		s.policy("versions", 5, "v1", "v2", "v3"),
		s.routes("a", "tag", "a/v1"),
		fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: versions, namespace: %s}
spec:
  hosts: ["%[2]s", "alias.%[1]s.test"]
  exportTo: ["."]
  http:
  - match:
    - {uri: {exact: /exact}, headers: {x-user: {regex: "[a-z]+"}}}
    - {uri: {regex: "/r[0-9]+"}, headers: {x-kind: {exact: b}}}
    route:
    - {destination: {host: "%[2]s", subset: v1}, weight: 20}
    - {destination: {host: "%[2]s", subset: v2}, weight: 80}
  - match: [{uri: {prefix: /zero}}]
    route:
    - {destination: {host: "%[2]s", subset: v3}, weight: 100}
    - {destination: {host: "%[2]s", subset: v2}, weight: 0}
  - route: [{destination: {host: "%[2]s", subset: v1}}]
`, s.ns, s.host("versions")),
	}
	s.put("rich.yaml", docs...)
	s.probe(client.CDS, "the rich mesh to be served", func(p *peer) bool { return p.Get(client.CDS, s.subset("versions", "v3")) != nil })
}

// richly edits the rich mesh in all types, and waits until a peer that follows has everything.
func (s *scene) richly(p *peer) {
	s.Helper()
	s.put("edit.yaml", s.routes("b", "tag", "versions/v2"), s.service(service{name: "edit", ports: tcpPort, vip: "240.240.2.9"}))
	p.routed("tag")
	p.has(client.LDS, "240.240.2.9_9000")
	p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
}
