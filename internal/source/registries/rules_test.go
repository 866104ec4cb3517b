package registries

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// convertedOf returns what becomes of a service of a registry.
func convertedOf(t *testing.T, entry string, s *Service) converted {
	t.Helper()
	f, err := Decode([]byte(`registries: [{type: consul, addresses: ["[2001:db8::1]:8500"], ` + entry + "}]"))
	if err != nil {
		t.Fatal(err)
	}
	return converter{&f.Registries[0], 0, "cluster.local"}.convert("web", s)
}

// TestDisagreement: instances of a port that disagree about its protocol make it TCP, whichever comes first, and there is a Problem.
func TestDisagreement(t *testing.T) {
	for _, protocols := range [][]string{{"http", "grpc"}, {"grpc", "http"}, {"http", "tcp", "http"}} {
		s := &Service{HostName: "web", Suffix: "test"}
		for i, p := range protocols {
			s.Instances = append(s.Instances, Instance{ID: fmt.Sprint(i), Address: fmt.Sprintf("192.0.2.%d", i+1), Ports: []Port{{Number: 80, Protocol: p}}})
		}
		is := convertedOf(t, "", s)
		if got := is.service.Spec.Ports[0].Protocol; got != mesh.TCP || len(is.problems) != 1 || is.problems[0].Code != "registry-protocol" || len(is.service.Endpoints) != len(protocols) {
			t.Errorf("%v: %v, %v", protocols, got, is.problems)
		}
	}
}

// TestSuffixes: a suffix with names of the server in it becomes a part of a host, as the name of the service does. One of the file stays as it is.
func TestSuffixes(t *testing.T) {
	for _, test := range []struct{ entry, name, suffix, want string }{
		{"", "orders", "DEFAULT_GROUP.public.nacos", "orders.default-group.public.nacos true false"},
		{"", "Orders", "PAY.public.nacos", "orders.pay.public.nacos true true"},
		{"", "my_orders", "pay.public.nacos", "my-orders.pay.public.nacos true false"},
		{"hostSuffix: my.suffix", "orders", "DEFAULT_GROUP.public.nacos", "orders.my.suffix true true"},
		{"hostSuffix: my_suffix", "orders", "DEFAULT_GROUP.public.nacos", "orders.my_suffix false true"},
	} {
		is := convertedOf(t, test.entry, &Service{HostName: test.name, Suffix: test.suffix, Instances: []Instance{{ID: "1", Address: "192.0.2.1", Ports: []Port{{Number: 80}}}}})
		if got := fmt.Sprint(is.host, " ", is.service != nil, " ", is.exact); got != test.want {
			t.Errorf("%s of %s with %q: %s, want %s, problems %v", test.name, test.suffix, test.entry, got, test.want, is.problems)
		}
	}
}

// TestProtocolNames: names of protocols count in any case.
func TestProtocolNames(t *testing.T) {
	for name, want := range map[string]mesh.Protocol{"HTTP": mesh.HTTP, "Http2": mesh.HTTP2, "gRPC": mesh.GRPC, "HTTPS": mesh.HTTPS, "Mongo": mesh.Mongo, "tcp": mesh.TCP} {
		is := convertedOf(t, "", &Service{HostName: "web", Suffix: "test", Instances: []Instance{{ID: "1", Address: "192.0.2.1", Ports: []Port{{Number: 80}}, Labels: map[string]string{"protocol": name}}}})
		if got := is.service.Spec.Ports[0].Protocol; got != want || len(is.problems) > 0 {
			t.Errorf("%s: %v, %v", name, got, is.problems)
		}
	}
}

// TestLabels: metadata that are valid labels are labels. Others are left out without a word, because registries are full of them.
func TestLabels(t *testing.T) {
	is := convertedOf(t, "", &Service{HostName: "web", Suffix: "test", Instances: []Instance{{
		ID: "1", Address: "192.0.2.1", Ports: []Port{{Number: 80}}, Labels: map[string]string{"version": "v1", "a b": "c", "note": "two words", "": "x", "long": strings.Repeat("x", 64), "empty": ""},
	}}})
	if got := fmt.Sprint(mesh.LabelMap(is.service.Endpoints[0].Labels)); got != "map[empty: version:v1]" || len(is.problems) > 0 {
		t.Errorf("%s, %v", got, is.problems)
	}
}

// TestLocality: the registry's own form goes before the label locality, and that before region, zone and subzone.
func TestLocality(t *testing.T) {
	all := map[string]string{"locality": "r/z/s", "region": "x", "zone": "y", "subzone": "q"}
	for _, test := range []struct {
		own    mesh.Locality
		labels map[string]string
		want   string
	}{
		{mesh.Locality{Region: "own"}, all, "own"}, {mesh.Locality{}, all, "r/z/s"}, {mesh.Locality{}, map[string]string{"region": "x", "zone": "y", "subzone": "q"}, "x/y/q"}, {mesh.Locality{}, nil, ""},
	} {
		is := convertedOf(t, "", &Service{HostName: "web", Suffix: "test", Instances: []Instance{{ID: "1", Address: "192.0.2.1", Ports: []Port{{Number: 80}}, Labels: test.labels, Locality: test.own}}})
		if got := is.service.Endpoints[0].Locality.String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test, got, test.want)
		}
	}
}

// TestRatios: ratios of weights are kept within one in a hundred, and their sum fits into 32 bits.
func TestRatios(t *testing.T) {
	for _, weights := range [][]string{{"1", "3"}, {"0.5", "1.5"}, {"0.333", "0.667"}, {"0.001", "1"}, {"100", "50", "1"}, {"1e6", "3e6"}, {"0.07", "12.5", "3"}} {
		s := &Service{HostName: "web", Suffix: "test"}
		for i, w := range weights {
			s.Instances = append(s.Instances, Instance{ID: fmt.Sprint(i), Address: fmt.Sprintf("192.0.2.%d", i+1), Ports: []Port{{Number: 80}}, Weight: w})
		}
		is := convertedOf(t, "", s)
		sum := uint64(0)
		var first float64
		if _, err := fmt.Sscan(weights[0], &first); err != nil {
			t.Fatal(err)
		}
		for i, e := range is.service.Endpoints {
			sum += uint64(e.Weight)
			var wanted float64
			if _, err := fmt.Sscan(weights[i], &wanted); err != nil {
				t.Fatal(err)
			}
			if got := float64(e.Weight) / float64(is.service.Endpoints[0].Weight); math.Abs(got/(wanted/first)-1) > 0.01 {
				t.Errorf("%v: the ratio of %s is %v, want %v", weights, weights[i], got, wanted/first)
			}
		}
		if sum > math.MaxUint32 {
			t.Errorf("%v: the sum is %d", weights, sum)
		}
	}
}

// TestAllDown: a service whose instances must not get traffic exists and serves nothing, and a service without instances is gone.
func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, ""), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"web": at("192.0.2.1")}, true)
		down := at("192.0.2.1")
		down.Instances[0].Down = "critical"
		to.Change(Services{"web": down})
		b.want("web.test:80")
		to.Change(Services{"web": at()})
		b.want("")
	})
}

// TestInvisible: services are in the namespace of their registry, and visible as it says.
func TestInvisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, fmt.Sprintf(one, `, namespace: shop, exportTo: ["."], include: ["w*"], exclude: ["web-test"]`), false)
		defer b.stop()
		to := <-b.listeners
		to.List(Services{"web": at("192.0.2.1"), "web-test": named("web-test", at("192.0.2.2")), "db": named("db", at("192.0.2.3"))}, true)
		b.want("web.test:80 192.0.2.1:80")
		s := b.rows[registry.ServiceKey("c", "shop", "web.test")]
		if s == nil || fmt.Sprint(s.ExportTo) != "[.]" || s.Spec.Namespace != "shop" {
			t.Errorf("%+v", s)
		}
	})
}

// TestSecretsChange: a changed file with secrets is read again, and the registry is asked at once, and keeps its services until it answers; a file that cannot be used
// is a refusal that shows no secret.
func TestSecretsChange(t *testing.T) {
	secrets := filepath.Join(t.TempDir(), "auth")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(secrets, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("consulToken=old")
	b := newBed(t, fmt.Sprintf(one, ", authFile: "+secrets), true)
	defer b.stop()
	(<-b.listeners).List(Services{"web": at("192.0.2.1")}, true)
	b.await("web.test:80 192.0.2.1:80")
	put("consulToken=new")
	to := <-b.listeners // another reader
	b.want("web.test:80 192.0.2.1:80")
	to.List(Services{"web": at("192.0.2.2")}, true)
	b.await("web.test:80 192.0.2.2:80")
	put("hunter2")
	b.until(func() bool { return b.has("registry-refused") })
	b.mu.Lock()
	defer b.mu.Unlock()
	if text := strings.Join(b.problems, "\n"); strings.Contains(text, "hunter2") {
		t.Errorf("a Problem shows a secret: %s", text)
	}
}
