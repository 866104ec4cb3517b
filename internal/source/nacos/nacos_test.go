package nacos

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

func show(key string, s *registries.Service) string {
	text := fmt.Sprintf("%s: %s.%s", key, s.HostName, s.Suffix)
	for _, in := range s.Instances {
		text += fmt.Sprintf(" %s:%d/%s", in.Address, in.Ports[0].Number, in.Ports[0].Protocol)
		if in.Weight != "" {
			text += "*" + in.Weight
		}
		if c := in.Labels["nacos-cluster"]; c != "" {
			text += " in " + c
		}
		if in.Down != "" {
			text += " (" + in.Down + ")"
		}
	}
	for _, u := range s.Unread {
		text += " unread " + u.Place
	}
	return text
}

// TestDecode holds what becomes of a service.
func TestDecode(t *testing.T) {
	for _, test := range []struct{ name, hosts, want string }{
		{"orders", `{"ip":"192.0.2.1","port":80,"weight":0.5,"healthy":true,"enabled":true,"clusterName":"DEFAULT"}`,
			"G@@orders: orders.G.dev.nacos 192.0.2.1:80/*0.5 in DEFAULT"},
		{"orders", `{"ip":"192.0.2.1","port":80,"healthy":false}, {"ip":"192.0.2.2","port":80,"enabled":false}`,
			"G@@orders: orders.G.dev.nacos 192.0.2.1:80/ (healthy is false) 192.0.2.2:80/ (enabled is false)"},
		{"orders", `{"ip":5}, {"ip":"192.0.2.1","port":80}`, "G@@orders: orders.G.dev.nacos 192.0.2.1:80/ unread G@@orders[0]"},
		{"providers:com.acme.Greeter:1.0.0:Blue", `{"ip":"192.0.2.1","port":20880,"weight":2,"metadata":{"protocol":"dubbo","side":"provider"}}`,
			"dubbo:com.acme.Greeter:1.0.0:Blue: com.acme.Greeter-Blue-1-0-0.dubbo 192.0.2.1:20880/DUBBO*2"},
		{"providers:com.acme.Greeter", `{"ip":"192.0.2.1","port":50051,"metadata":{"protocol":"tri","weight":"300"}}`,
			"dubbo:com.acme.Greeter::: com.acme.Greeter.dubbo 192.0.2.1:50051/http2*3"},
	} {
		if got := show(decode(listing{"G", test.name}, "dev", []byte(`{"hosts":[`+test.hosts+`]}`))); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("providers:a:b", []byte(`{"hosts":[{"ip":"192.0.2.1","port":80,"metadata":{"k":"v"}}]}`))
	f.Fuzz(func(_ *testing.T, name string, body []byte) { decode(listing{"G", name}, "public", body) })
}
