package resource

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/omap"
)

type (
	pieces    = omap.Map[omap.Name, *Piece]
	resources = omap.Map[omap.Name, *Resource]
)

// frames decodes a resource's frames with the generated types.
func frames(t testing.TB, r *Resource) (delta *discoveryv3.Resource, sotw *anypb.Any) {
	t.Helper()
	raw := bytes.Join(r.AppendDelta(nil), nil)
	if len(raw) != r.Size() {
		t.Fatalf("the delta frame has %d bytes, Size says %d", len(raw), r.Size())
	}
	var d discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	raw = bytes.Join(r.AppendSotW(nil), nil)
	if len(raw) != r.SizeSotW() {
		t.Fatalf("the State-of-the-World frame has %d bytes, SizeSotW says %d", len(raw), r.SizeSotW())
	}
	var s discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	if len(d.Resources) != 1 || len(s.Resources) != 1 || len(d.ProtoReflect().GetUnknown())+len(s.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("frames hold %d and %d resources", len(d.Resources), len(s.Resources))
	}
	return d.Resources[0], s.Resources[0]
}

func TestFramesServeBothVariants(t *testing.T) {
	for _, size := range []int{0, 1, 100, 127, 128, 16_000, 16_400, 70_000, 3_000_000} {
		msg := &clusterv3.Cluster{Name: "c", AltStatName: strings.Repeat("x", size)}
		r := New(Cluster, "c", msg)
		d, s := frames(t, r)
		if d.Name != "c" || d.Version != r.Version() || !proto.Equal(d.Resource, s) || s.TypeUrl != Cluster.URL() {
			t.Fatalf("got %.200v", d)
		}
		var got clusterv3.Cluster
		if err := s.UnmarshalTo(&got); err != nil || !proto.Equal(&got, msg) {
			t.Fatalf("decoded %.200v, %v", &got, err)
		}
		if back, err := r.Proto(); err != nil || !proto.Equal(back, msg) {
			t.Fatalf("Proto gave %.200v, %v", back, err)
		}
		if !r.IsVersion([]byte(r.Version())) || r.IsVersion([]byte("x")) || r.IsVersion(nil) {
			t.Fatal("IsVersion is wrong about the version")
		}
	}
}

func TestGatheredRouteIsARouteConfiguration(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(rt, "n")
		header := &routev3.RouteConfiguration{Name: "80", InternalOnlyHeaders: []string{"x"}}
		want := proto.Clone(header).(*routev3.RouteConfiguration)
		var puts []omap.Change[omap.Name, *Piece]
		for i := range n {
			name := fmt.Sprintf("v%03d", i)
			v := &routev3.VirtualHost{Name: name, Domains: []string{strings.Repeat("d", rapid.IntRange(1, 300).Draw(rt, "size"))}}
			if rapid.IntRange(0, 5).Draw(rt, "hidden") == 0 {
				puts = append(puts, omap.Put(omap.Name(name), HidePiece(name)))
				continue
			}
			puts = append(puts, omap.Put(omap.Name(name), NewPiece(name, v, nil)))
			want.VirtualHosts = append(want.VirtualHosts, v)
		}
		r := NewRoute("80", header, omap.With(pieces{}, puts...))
		_, s := frames(t, r)
		var got routev3.RouteConfiguration
		if err := s.UnmarshalTo(&got); err != nil || !proto.Equal(&got, want) {
			rt.Fatalf("decoded %v, %v", &got, err)
		}
		again := r.WithPieces(r.Pieces())
		if again.ContentHash() != r.ContentHash() || !again.SameHeader(r) || again.Size() != r.Size() {
			rt.Fatal("the same header and pieces make another resource")
		}
	})
}

func TestVersionsFollowContent(t *testing.T) {
	a := New(Cluster, "c", &clusterv3.Cluster{Name: "c"})
	b := New(Cluster, "c", &clusterv3.Cluster{Name: "c"})
	c := New(Cluster, "c", &clusterv3.Cluster{Name: "c", AltStatName: "x"})
	if a.Version() != b.Version() || a.Version() == c.Version() {
		t.Error("versions do not follow content")
	}
	// A version is a promise to clients that outlives this process and this program.
	if got := a.Version(); got != "1e816797e5289fb10725238ac5090bc9" {
		t.Errorf("the version of a known resource became %s", got)
	}
	if Hide("c").ContentHash() == a.ContentHash() || !Hide("c").Hidden() || Hide("c").Size() != 0 {
		t.Error("Hide is no mask")
	}
}

func TestWhatAClusterFetches(t *testing.T) {
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	eds := func(service string, src *corev3.ConfigSource) *Resource {
		return New(Cluster, "c", &clusterv3.Cluster{
			Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: src, ServiceName: service},
		})
	}
	for _, c := range []struct {
		r    *Resource
		want string
	}{
		{eds("", ads), "c"},
		{eds("s", ads), "s"},
		{eds("s", &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Path{Path: "/x"}}), ""}, //nolint:staticcheck // deprecated, and still accepted
		{New(Cluster, "c", &clusterv3.Cluster{Name: "c"}), ""},
	} {
		if name, ok := c.r.EDS(); name != c.want || ok != (c.want != "") {
			t.Errorf("fetches %q %v, want %q", name, ok, c.want)
		}
	}
}

func TestWhatAListenerFetches(t *testing.T) {
	hcm := func(route string) *anypb.Any {
		a, err := anypb.New(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{RouteConfigName: route},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	chain := func(route string) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm(route)}}}}
	}
	r := New(Listener, "l", &listenerv3.Listener{
		Name: "l", FilterChains: []*listenerv3.FilterChain{chain("b"), chain("a"), chain("b")}, DefaultFilterChain: chain("c"),
		ApiListener: &listenerv3.ApiListener{ApiListener: hcm("d")},
	})
	if got := r.Refs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("fetches %v", got)
	}
}

func TestUnencodable(t *testing.T) {
	for name, f := range map[string]func(){
		"utf8":          func() { New(Cluster, "c", &clusterv3.Cluster{Name: "\xff"}) },
		"virtual hosts": func() { NewRoute("r", &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{}}}, pieces{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `"`) {
					t.Errorf("panicked with %v", err)
				}
			}()
			f()
		})
	}
}

func TestTypes(t *testing.T) {
	for typ := Type(0); typ < Types; typ++ {
		if got, ok := ParseType(typ.URL()); !ok || got != typ || typ.String() == "" {
			t.Errorf("%d: %v %v", typ, got, ok)
		}
	}
	if _, ok := ParseType("x"); ok {
		t.Error("x is a type")
	}
}

// TestLayersAgainstAMap compares layers with an equivalent flat map.
func TestLayersAgainstAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, flatA := drawLayers(rt, "a")
		b, flatB := drawLayers(rt, "b")
		var all []string
		for r := range a.All() {
			all = append(all, r.Name())
			if flatA[r.Name()] != r.ContentHash() {
				rt.Fatalf("All yields another %s", r.Name())
			}
		}
		if len(all) != len(flatA) || a.Len() != len(flatA) || !slices.IsSorted(all) {
			rt.Fatalf("All yields %v of %v", all, flatA)
		}
		replayed := map[string]omap.Hash{}
		for n, h := range flatA {
			replayed[n] = h
		}
		last := ""
		for c := range Diff(a, b) {
			if c.Name <= last && last != "" {
				rt.Fatal("Diff is out of order")
			}
			last = c.Name
			if (c.Old != nil) != has(flatA, c.Name) || (c.New != nil) != has(flatB, c.Name) || c.Old != nil && c.New != nil && c.Old.ContentHash() == c.New.ContentHash() {
				rt.Fatalf("Diff yields %+v", c)
			}
			delete(replayed, c.Name)
			if c.New != nil {
				replayed[c.Name] = c.New.ContentHash()
			}
		}
		if fmt.Sprint(replayed) != fmt.Sprint(flatB) {
			rt.Fatalf("a and Diff(a, b) make %v, want %v", replayed, flatB)
		}
		for n := range 8 {
			name := fmt.Sprint("n", n)
			if r, ok := a.Get(name); ok != has(flatA, name) || ok && r.ContentHash() != flatA[name] {
				rt.Fatalf("Get(%s) is wrong", name)
			}
		}
	})
}

func has(m map[string]omap.Hash, k string) bool { _, ok := m[k]; return ok }

func drawLayers(rt *rapid.T, label string) (Layers, map[string]omap.Hash) {
	var l Layers
	flat := map[string]omap.Hash{}
	seen := map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(rt, label) {
		var puts []omap.Change[omap.Name, *Resource]
		for n := range 8 {
			name := fmt.Sprint("n", n)
			var r *Resource
			switch kind := rapid.IntRange(0, 5).Draw(rt, "kind"); {
			case kind < 2:
				continue
			case kind == 2:
				r = Hide(name)
			default:
				r = New(Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: fmt.Sprint(kind)})
			}
			puts = append(puts, omap.Put(omap.Name(name), r))
			if !seen[name] && !r.Hidden() {
				flat[name] = r.ContentHash()
			}
			seen[name] = true
		}
		l = append(l, omap.With(resources{}, puts...))
	}
	return l, flat
}

// TestTogether checks that virtual hosts that exchange domains change together, directly or through others, and that removals
// wait for additions.
func TestTogether(t *testing.T) {
	table := func(domains ...string) omap.Map[omap.Name, *Piece] {
		var puts []omap.Change[omap.Name, *Piece]
		for _, d := range domains {
			name, list, _ := strings.Cut(d, "=")
			vhost := &routev3.VirtualHost{Name: name, Domains: strings.Split(list, ",")}
			puts = append(puts, omap.Put(omap.Name(name), NewPiece(name, vhost, nil)))
		}
		return omap.With(omap.Map[omap.Name, *Piece]{}, puts...)
	}
	before, after := table("a=1,2", "b=3", "c=4", "gone=5", "same=6"), table("a=1", "b=2", "c=3", "new=7", "other=8,9", "same=6")
	var names []string
	for _, pc := range Together(slices.Collect(omap.Diff(before, after)), func(pc PieceChange) bool { return pc.Key == "a" }) {
		names = append(names, string(pc.Key))
	}
	if got := strings.Join(names, " "); got != "a b c gone" {
		t.Errorf("together: %s", got)
	}
	if list := HidePiece("x").Domains(); list != nil {
		t.Errorf("an entry that masks has the domains %v", list)
	}
}

// TestSplit: a split route configuration and its virtual hosts are what the whole one is, in parts, and names can be taken apart again.
func TestSplit(t *testing.T) {
	piece := PieceOf("a/b%:80", &routev3.VirtualHost{Name: "a/b%:80", Domains: []string{"a"}})
	whole := NewRoute("80", &routev3.RouteConfiguration{Name: "80", InternalOnlyHeaders: []string{"x"}}, omap.With(omap.Map[omap.Name, *Piece]{}, omap.Put(omap.Name(piece.Name()), piece)))
	head, host := whole.Head(), piece.Host("80")
	m, err := head.Proto()
	if err != nil {
		t.Fatal(err)
	}
	if r := m.(*routev3.RouteConfiguration); r.GetName() != "80" || len(r.GetInternalOnlyHeaders()) != 1 || r.GetVhds().GetConfigSource().GetAds() == nil || len(r.GetVirtualHosts()) != 0 {
		t.Errorf("the head is %v", r)
	}
	if !IsSplitVersion([]byte(head.Version())) || IsSplitVersion([]byte(whole.Version())) || !whole.IsHeadVersion([]byte(head.Version())) || whole.IsHeadVersion([]byte(whole.Version())) {
		t.Errorf("versions: head %s, whole %s", head.Version(), whole.Version())
	}
	m, err = host.Proto()
	if err != nil {
		t.Fatal(err)
	}
	if v := m.(*routev3.VirtualHost); v.GetName() != host.Name() || host.Name() != "80/a%2Fb%25:80" || len(v.GetDomains()) != 1 {
		t.Errorf("the virtual host %s is %v", host.Name(), v)
	}
	if route, name := SplitHostName(host.Name()); route != "80" || name != piece.Name() {
		t.Errorf("%s belongs to %q and is called %q", host.Name(), route, name)
	}
	var delta discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(slices.Concat(slices.Concat(head.AppendDelta(nil)...), slices.Concat(host.AppendDelta(nil)...)), &delta); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*Resource{head, host} {
		if got := delta.GetResources()[i]; got.GetName() != r.Name() || got.GetVersion() != r.Version() || got.GetResource().GetTypeUrl() != r.Type().URL() {
			t.Errorf("the frame is %v", got)
		}
	}
	if !piece.IsVersion([]byte(host.Version())) || piece.IsVersion([]byte(head.Version())) || UnknownPiece("a").HasContent() || whole.WithoutHeader().SameHeader(whole) {
		t.Error("what is unknown counts as known")
	}
}
