package mesh

import (
	"slices"
	"testing"
)

func TestPatternsCoverTheirHost(t *testing.T) {
	for host, want := range map[string][]string{
		"a.b.c":   {"*.b.c", "*.c", "*"},
		"a":       {"*"},
		"*.b.c":   {"*.c", "*"},
		"*.c":     {"*"},
		"*":       nil,
		"x.y.z.w": {"*.y.z.w", "*.z.w", "*.w", "*"},
	} {
		got := slices.Collect(Patterns(host))
		if !slices.Equal(got, want) {
			t.Errorf("Patterns(%q) = %q, want %q", host, got, want)
		}
		for _, p := range got {
			if !Covers(p, host) {
				t.Errorf("%q does not cover %q", p, host)
			}
			if Covers(host, p) {
				t.Errorf("%q covers the wider %q", host, p)
			}
		}
	}
	for _, no := range [][2]string{{"*.b.c", "b.c"}, {"a.b", "a.b.c"}, {"*.c", "a.b"}, {"*.b.c", "*.c"}} {
		if Covers(no[0], no[1]) {
			t.Errorf("%q covers %q", no[0], no[1])
		}
	}
}

func TestFullHost(t *testing.T) {
	for host, want := range map[string]string{
		"reviews":       "reviews.shop.svc.cluster.local",
		"Reviews":       "reviews.shop.svc.cluster.local",
		"API.Example.":  "api.example",
		"*":             "*",
		"*.example.com": "*.example.com",
		"fd00::1":       "fd00::1",
		"":              "",
	} {
		if got := FullHost(host, "shop", "cluster.local"); got != want {
			t.Errorf("FullHost(%q) = %q, want %q", host, got, want)
		}
	}
}

func TestClusterHost(t *testing.T) {
	if name, ns, ok := ClusterHost("a.b.svc.cluster.local", "cluster.local"); !ok || name != "a" || ns != "b" {
		t.Errorf("got %q, %q, %v", name, ns, ok)
	}
	for _, host := range []string{"a.com", "b.svc.cluster.local", "x.a.b.svc.cluster.local", "*.b.svc.cluster.local", "svc.cluster.local"} {
		if name, ns, ok := ClusterHost(host, "cluster.local"); ok {
			t.Errorf("ClusterHost(%q) = %q, %q", host, name, ns)
		}
	}
}

func TestProtocols(t *testing.T) {
	for p := Auto; p <= UDP; p++ {
		if got, known := ParseProtocol(p.String()); got != p || !known {
			t.Errorf("%v reads back as %v, %v", p, got, known)
		}
	}
	if p, known := ParseProtocol("grpc-web"); p != GRPCWeb || !known {
		t.Errorf("grpc-web is %v, %v", p, known)
	}
	if p, known := ParseProtocol("gopher"); p != Auto || known {
		t.Errorf("gopher is %v, %v", p, known)
	}
}

func TestLocality(t *testing.T) {
	for _, s := range []string{"", "r", "r/z", "r/z/s"} {
		if got := ParseLocality(s).String(); got != s {
			t.Errorf("%q reads back as %q", s, got)
		}
	}
}

func TestEndpointPort(t *testing.T) {
	e := Endpoint{Ports: map[string]uint32{"http": 8081}}
	for want, p := range map[uint32]Port{
		8081: {Number: 80, TargetPort: 8080, Name: "http"},
		8080: {Number: 80, TargetPort: 8080, Name: "other"},
		80:   {Number: 80},
	} {
		if got := e.Port(p); got != want {
			t.Errorf("port of %+v is %d, want %d", p, got, want)
		}
	}
}

func TestRunsAt(t *testing.T) {
	said := Locality{"r", "z", "s"}
	for _, c := range []struct {
		labels map[string]string
		want   Locality
	}{
		{nil, said},
		{map[string]string{"app": "web"}, said},
		{map[string]string{regionLabel: "a"}, Locality{Region: "a"}},
		{map[string]string{oldLocalityLabel: "a"}, Locality{"a", "", ""}},
		{map[string]string{oldLocalityLabel: "a.b"}, Locality{"a", "b", ""}},
		{map[string]string{oldLocalityLabel: "a.1/b/c"}, Locality{"a.1", "b", "c"}},
		{map[string]string{localityLabel: "a.b.c"}, Locality{"a", "b", "c"}},
		{map[string]string{oldLocalityLabel: "x.y.z", localityLabel: "a"}, Locality{"a", "", ""}},
		{map[string]string{oldLocalityLabel: "a.b", localityLabel: ""}, Locality{"a", "b", ""}},
		{map[string]string{zoneLabel: "b", oldLocalityLabel: "a.c"}, Locality{Zone: "b"}},
		{map[string]string{oldZoneLabel: "b"}, said},
	} {
		if got := WorkloadLocality(LabelsOf(c.labels), said); got != c.want {
			t.Errorf("%v: %v, want %v", c.labels, got, c.want)
		}
	}
}

// TestNodeLocality checks that each label of a node in its old name counts only where the new one is missing.
func TestNodeLocality(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   Locality
	}{
		{nil, Locality{}},
		{map[string]string{regionLabel: "r", zoneLabel: "z", subZoneLabel: "s"}, Locality{"r", "z", "s"}},
		{map[string]string{oldRegionLabel: "r", oldZoneLabel: "z", subZoneLabel: "s"}, Locality{"r", "z", "s"}},
		{map[string]string{regionLabel: "r", oldRegionLabel: "x", oldZoneLabel: "z"}, Locality{"r", "z", ""}},
		{map[string]string{zoneLabel: "z", oldZoneLabel: "x"}, Locality{Zone: "z"}},
		{map[string]string{oldLocalityLabel: "r.z"}, Locality{}},
	} {
		if got := NodeLocality(LabelsOf(c.labels)); got != c.want {
			t.Errorf("%v: %v, want %v", c.labels, got, c.want)
		}
	}
}

// TestNearLabels checks that only the preference for the own node distinguishes the subzones of a zone.
func TestNearLabels(t *testing.T) {
	for n, want := range map[Nearness][]string{
		Anywhere: nil,
		SameZone: {NetworkLabel, regionLabel, zoneLabel},
		SameNode: {NetworkLabel, regionLabel, zoneLabel, subZoneLabel, nodeLabel},
		OnlyNode: {nodeLabel},
	} {
		if got := NearLabels(n); !slices.Equal(got, want) {
			t.Errorf("%v compares %q, want %q", n, got, want)
		}
	}
}

// TestHas: the place of an endpoint counts as labels and, except for the network, overrides labels of the same name.
func TestHas(t *testing.T) {
	e := Endpoint{
		Labels:   LabelsOf(map[string]string{"app": "web", "empty": "", zoneLabel: "other", NetworkLabel: "n1"}),
		Locality: Locality{Region: "r", Zone: "z"}, Network: "n2",
	}
	for _, c := range []struct {
		key, value string
		want       bool
	}{
		{"app", "web", true}, {"app", "", false}, {"empty", "", true}, {"none", "", false},
		{regionLabel, "r", true}, {regionLabel, "", false}, {zoneLabel, "z", true}, {subZoneLabel, "s", false},
		{NetworkLabel, "n1", true}, {NetworkLabel, "n2", false},
	} {
		if got := e.Has(map[string]string{c.key: c.value}); got != c.want {
			t.Errorf("%s=%s: %v", c.key, c.value, got)
		}
	}
}

func TestNearness(t *testing.T) {
	for s, want := range map[string]Nearness{
		"": Anywhere, "any": Anywhere, "preferclose": SameZone, "preferSameZone": SameZone, "PreferSameNode": SameNode, "x": Anywhere,
	} {
		n, known := ParseNearness(s)
		if n != want || known != (s != "" && s != "x") {
			t.Errorf("%q is %v, %v", s, n, known)
		}
	}
}
