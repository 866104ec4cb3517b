package request

import (
	"bytes"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// FuzzScan compares the scanner with the protobuf codec: what the codec accepts the scanner accepts, with the same
// fields; what only the scanner accepts is malformed inside a part that is decoded later or not at all.
func FuzzScan(f *testing.F) {
	detail := &statuspb.Status{Code: 3, Message: "bad"}
	n := &corev3.Node{Id: "n", Cluster: "c"}
	for _, m := range []proto.Message{
		&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: resource.Cluster.URL(), ResourceNames: []string{"a", "b", ""}, VersionInfo: "1", ResponseNonce: "1c"},
		&discoveryv3.DiscoveryRequest{TypeUrl: "x", ErrorDetail: detail},
		&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: resource.Endpoint.URL(), ResourceNamesSubscribe: []string{"a", "*"},
			ResourceNamesUnsubscribe: []string{"b"}, InitialResourceVersions: map[string]string{"a": "1", "": ""}},
		&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "2e", ErrorDetail: detail},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte{0x1a, 0x02, 0xff, 0xfe})
	f.Fuzz(func(t *testing.T, raw []byte) {
		compareSotW(t, raw)
		compareDelta(t, raw)
	})
}

func compareSotW(t *testing.T, raw []byte) {
	var m discoveryv3.DiscoveryRequest
	want := proto.Unmarshal(raw, &m)
	q, err := Scan(StateOfTheWorld, raw)
	if !sameVerdict(t, raw, want, err) || err != nil || want != nil {
		return
	}
	var list []string
	for n := range q.Subscribed() {
		list = append(list, string(n))
	}
	if !slices.Equal(list, m.ResourceNames) || string(q.URL) != m.TypeUrl || string(q.Nonce) != m.ResponseNonce {
		t.Fatalf("scanned %q %q %q, want %v", list, q.URL, q.Nonce, &m)
	}
	compareParts(t, q, m.Node, m.ErrorDetail)
	_ = q.Digest()
}

func compareDelta(t *testing.T, raw []byte) {
	var m discoveryv3.DeltaDiscoveryRequest
	want := proto.Unmarshal(raw, &m)
	q, err := Scan(Delta, raw)
	if !sameVerdict(t, raw, want, err) || err != nil || want != nil {
		return
	}
	var add, drop []string
	for n := range q.Subscribed() {
		add = append(add, string(n))
	}
	for n := range q.Dropped() {
		drop = append(drop, string(n))
	}
	initial := map[string]string{}
	for n, v := range q.Initial() {
		initial[string(n)] = string(v)
	}
	if !slices.Equal(add, m.ResourceNamesSubscribe) || !slices.Equal(drop, m.ResourceNamesUnsubscribe) ||
		string(q.URL) != m.TypeUrl || string(q.Nonce) != m.ResponseNonce || len(initial) != len(m.InitialResourceVersions) {
		t.Fatalf("scanned %q %q %q %q %v, want %v", add, drop, q.URL, q.Nonce, initial, &m)
	}
	for n, v := range m.InitialResourceVersions {
		if initial[n] != v {
			t.Fatalf("scanned version %q of %q, want %q", initial[n], n, v)
		}
	}
	compareParts(t, q, m.Node, m.ErrorDetail)
	_ = q.Digest()
}

// compareParts decodes the parts the scanner left alone.
func compareParts(t *testing.T, q *Request, node *corev3.Node, detail *statuspb.Status) {
	var n corev3.Node
	if err := proto.Unmarshal(q.Node, &n); err != nil || (q.Node != nil) != (node != nil) || node != nil && !proto.Equal(&n, node) {
		t.Fatalf("scanned node %v (%v), want %v", &n, err, node)
	}
	if q.Rejected != (detail != nil) {
		t.Fatalf("rejected %v, want %v", q.Rejected, detail)
	}
	if got := StatusText(q.Detail, 1<<20); got != detail.GetMessage() {
		t.Fatalf("scanned reason %q, want %q", got, detail.GetMessage())
	}
}

// sameVerdict: the codec may refuse more, because it looks into messages the scanner leaves alone.
func sameVerdict(t *testing.T, raw []byte, codec, scan error) bool {
	t.Helper()
	if codec == nil && scan != nil {
		t.Fatalf("the codec accepts %x, the scanner says %v", raw, scan)
	}
	return true
}

func TestScanRefuses(t *testing.T) {
	name := func(field byte, s string) []byte { return append([]byte{field<<3 | 2, byte(len(s))}, s...) }
	for _, c := range []struct {
		rule    string
		variant Variant
		raw     []byte
	}{
		{"hostile/utf8", StateOfTheWorld, name(sotwNames, "\xff")},
		{"hostile/utf8", Delta, name(deltaSubscribe, "\xff")},
		{"hostile/utf8", Delta, name(deltaInitial, string(name(1, "\xff")))},
		{"hostile/garbage", Delta, []byte("\x12\x7fcut")},
		{"hostile/garbage", StateOfTheWorld, bytes.Repeat([]byte{0x80}, 20)},
	} {
		if _, err := Scan(c.variant, c.raw); err == nil {
			t.Errorf("%s: %x was accepted", c.rule, c.raw)
		}
	}
}

func TestDigestTellsListsApart(t *testing.T) {
	scan := func(m *discoveryv3.DeltaDiscoveryRequest) *Request {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Scan(Delta, raw)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	base := scan(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b"}}).Digest()
	same := scan(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b"}, ResponseNonce: "1", TypeUrl: "x"}).Digest()
	if base != same {
		t.Error("the digest depends on more than the names")
	}
	for _, m := range []*discoveryv3.DeltaDiscoveryRequest{
		{ResourceNamesSubscribe: []string{"ab"}},
		{ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"}},
		{ResourceNamesUnsubscribe: []string{"a", "b"}},
		{},
	} {
		if scan(m).Digest() == base {
			t.Errorf("%v has the digest of another list", m)
		}
	}
}
