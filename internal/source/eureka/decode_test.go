package eureka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

const (
	up   = `{"instanceId":"o1","hostName":"h1","app":"ORDERS","ipAddr":"192.0.2.1","status":"UP","overriddenStatus":"UNKNOWN","port":{"$":8080,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},"metadata":{"@class":"java.util.Collections$EmptyMap","zone":"z1"}}`
	down = `{"instanceId":"o2","hostName":"h2","app":"ORDERS","status":"UP","overriddenStatus":"OUT_OF_SERVICE","port":{"$":8080,"@enabled":"false"},"securePort":{"$":"8443","@enabled":true},"metadata":{"weight":"3"}}`
)

func show(s *registries.Service) string {
	if s == nil {
		return "gone"
	}
	text := s.HostName + "." + s.Suffix
	for _, in := range s.Instances {
		text += " " + in.Address
		for _, p := range in.Ports {
			text += fmt.Sprintf(":%d/%s", p.Number, p.Protocol)
		}
		if in.Weight != "" {
			text += "*" + in.Weight
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

func entry() registries.Entry { return registries.Entry{Type: registries.Eureka} }

// TestDecode holds what becomes of an application, with an only element in the place of a list, too.
func TestDecode(t *testing.T) {
	for _, app := range []string{
		`[{"name":"ORDERS","instance":[` + up + `,` + down + `]}]`,
		`{"name":"ORDERS","instance":[` + up + `,` + down + `]}`,
	} {
		a, err := decode([]byte(`{"applications":{"application":` + app + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		const want = "ORDERS.eureka 192.0.2.1:8080/ h2:8443/https*3 (its status is OUT_OF_SERVICE)"
		if got := show(a.services(entry(), nil)["ORDERS"]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestDelta: changes count if the hash of the server says so.
func TestDelta(t *testing.T) {
	a, err := decode([]byte(`{"applications":{"application":[{"name":"ORDERS","instance":` + up + `}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	delta := func(hash, action, instance string) []byte {
		instance = strings.Replace(instance, "{", `{"actionType":"`+action+`",`, 1)
		return []byte(`{"applications":{"apps__hashcode":"` + hash + `","application":[{"name":"ORDERS","instance":[` + instance + `]}]}}`)
	}
	if _, _, ok := a.with(delta("UP_5_", "ADDED", down)); ok {
		t.Error("changes that do not lead to what the server has count")
	}
	b, touched, ok := a.with(delta("UP_2_", "ADDED", down))
	if !ok || !touched["ORDERS"] || len(b.apps["ORDERS"]) != 2 || len(a.apps["ORDERS"]) != 1 {
		t.Errorf("an addition: %v %v %v", b, touched, ok)
	}
	c, _, ok := b.with(delta("UP_1_", "DELETED", up))
	if got := show(c.services(entry(), map[string]bool{"ORDERS": true})["ORDERS"]); !ok || !strings.HasPrefix(got, "ORDERS.eureka h2") {
		t.Errorf("a removal: %s", got)
	}
	d, touched, ok := c.with(delta("", "DELETED", down))
	if got := show(d.services(entry(), touched)["ORDERS"]); !ok || got != "gone" {
		t.Errorf("the last one goes: %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"applications":{"application":[{"name":"ORDERS","instance":[` + up + `]}]}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		a, err := decode(body)
		if err != nil {
			return
		}
		_, _, _ = a.with(body)
		a.services(entry(), nil)
	})
}
