package dubbo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// TestHost holds which interface has which host: group and version are parts of it, unless they are the default.
func TestHost(t *testing.T) {
	for _, test := range []struct {
		params map[string]string
		host   string
	}{
		{nil, "a.B"},
		{map[string]string{"version": "0.0.0"}, "a.B"},
		{map[string]string{"version": "1.2.0", "group": "g"}, "a.B-g-1-2-0"},
		{map[string]string{"default.version": "2.0", "default.group": "d"}, "a.B-d-2-0"},
		{map[string]string{"group": "g", "default.group": "d"}, "a.B-g"},
	} {
		if s := Service(Interface("a.B", test.params)); s.HostName != test.host || s.Suffix != "dubbo" {
			t.Errorf("%v: %s.%s, want %s.dubbo", test.params, s.HostName, s.Suffix, test.host)
		}
	}
}

// TestLabels: tags with a key go before parameters of the same name, each time, and parameters that change with every start are no labels.
func TestLabels(t *testing.T) {
	const want = "[a=tag b=2 dubbo.tag=gray zone=z]"
	for range 20 { // the order of a map must not count
		labels := Labels(map[string]string{"a": "param", "dubbo.tag": "a=tag, b = 2,gray", "zone": "z", "timestamp": "1", "pid": "2", "methods": "x,y"})
		var list []string
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			list = append(list, k+"="+labels[k])
		}
		if got := fmt.Sprint(list); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// TestProtocol holds the protocol of a port by its URL.
func TestProtocol(t *testing.T) {
	for _, test := range []struct {
		scheme string
		params map[string]string
		want   string
	}{
		{"dubbo", nil, mesh.Dubbo.String()},
		{"dubbo", map[string]string{"serialization": "hessian2"}, mesh.Dubbo.String()},
		{"dubbo", map[string]string{"prefer.serialization": "hessian2,fastjson2"}, mesh.Dubbo.String()},
		{"dubbo", map[string]string{"prefer.serialization": "fastjson2,hessian2"}, "tcp"},
		{"dubbo", map[string]string{"serialization": "fastjson2", "prefer.serialization": "hessian2"}, "tcp"},
		{"tri", nil, "http2"}, {"grpc", nil, "grpc"}, {"rest", nil, "http"}, {"http", nil, "http"}, {"thrift", nil, "tcp"},
	} {
		if got := Protocol(test.scheme, test.params); got != test.want {
			t.Errorf("%s %v: %s, want %s", test.scheme, test.params, got, test.want)
		}
	}
}

// TestSerialization: a port with calls that Envoy cannot read is TCP, and has a remark.
func TestSerialization(t *testing.T) {
	for preferred, remark := range map[string]string{"hessian2,fastjson2": "", "fastjson2,hessian2": "its serialization is fastjson2"} {
		p := Provider{Scheme: "dubbo", Port: 20880, Params: map[string]string{"prefer.serialization": preferred}}.Instance().Ports[0]
		if got := p.Remark; got != remark && (remark == "" || !strings.HasPrefix(got, remark)) {
			t.Errorf("%s: %q", preferred, got)
		}
	}
}

// TestWeight: 100 is Dubbo's default and counts as 1. Other text stays, so that it is reported; a disabled provider takes no traffic.
func TestWeight(t *testing.T) {
	for _, test := range []struct{ weight, byDefault, want string }{{"", "", ""}, {"100", "", "1"}, {"50", "", "0.5"}, {"0", "", "0"}, {"", "200", "2"}, {"much", "", "much"}} {
		params := map[string]string{"weight": test.weight, "default.weight": test.byDefault}
		if got := (Provider{Scheme: "dubbo", Params: params}).Instance().Weight; got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	for release, want := range map[string]string{"dubbo-golang-3.3.1": "", "3.3.5": "0"} {
		if got := (Provider{Scheme: "tri", Params: map[string]string{"weight": "0", "release": release}}).Instance().Weight; got != want {
			t.Errorf("the weight 0 of release %s: %q, want %q", release, got, want)
		}
	}
	for _, params := range []map[string]string{{"disabled": "true"}, {"enabled": "false"}} {
		if (Provider{Params: params}).Instance().Down == "" {
			t.Errorf("%v takes traffic", params)
		}
	}
}

// FuzzProvider: the parameters of a URL lead to the same instance each time.
func FuzzProvider(f *testing.F) {
	f.Add("dubbo", "192.0.2.1", "dubbo.tag", "a=b,c", "weight", "1e9")
	f.Fuzz(func(t *testing.T, scheme, address, k, v, k2, v2 string) {
		params := map[string]string{k: v, k2: v2}
		p := Provider{Scheme: scheme, Address: address, Port: 1, Params: params}
		if a, b := fmt.Sprint(p.Instance()), fmt.Sprint(p.Instance()); a != b {
			t.Errorf("%s, then %s", a, b)
		}
	})
}
