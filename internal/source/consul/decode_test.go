package consul

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

func show(in registries.Instance) string {
	text := fmt.Sprintf("%s %s", in.ID, in.Address)
	for _, p := range in.Ports {
		text += fmt.Sprintf(":%d/%s", p.Number, p.Protocol)
	}
	var labels []string
	for k, v := range in.Labels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	text += fmt.Sprintf(" w%s %s [%s]", in.Weight, in.Locality, strings.Join(labels, " "))
	if in.External {
		text += " external"
	}
	if in.Down != "" {
		text += " down: " + in.Down
	}
	return text
}

// TestDecode holds what becomes of an instance.
func TestDecode(t *testing.T) {
	const node = `"Node": {"Node": "n", "Address": "192.0.2.200", "Datacenter": "dc1", "Meta": {"zone": "z1"}}`
	tests := []struct{ name, service, checks, want string }{
		{"plain", `"ID": "w", "Address": "192.0.2.1", "Port": 80`, ``, "n/w 192.0.2.1:80/ w1 dc1/z1 []"},
		{"address of the node", `"ID": "w", "Port": 80`, ``, "n/w 192.0.2.200:80/ w1 dc1/z1 []"},
		{"no port", `"ID": "w", "Port": 0`, ``, "n/w 192.0.2.200 w1 dc1/z1 []"},
		{"socket", `"ID": "w", "Port": 80, "SocketPath": "/s"`, ``, "n/w 192.0.2.200 w1 dc1/z1 []"},
		{"labels", `"ID": "w", "Port": 80, "Meta": {"version": "v1"}, "Tags": ["version|v2", "a|b=c", "d=e=f", "plain"]`, ``,
			"n/w 192.0.2.200:80/ w1 dc1/z1 [a=b=c consul-tag/plain=true d=e=f version=v2]"},
		{"protocol", `"ID": "w", "Port": 80, "Meta": {"protocol": "http"}, "Tags": ["protocol|grpc"]`, ``, "n/w 192.0.2.200:80/http w1 dc1/z1 [protocol=grpc]"},
		{"protocol of a tag", `"ID": "w", "Port": 80, "Tags": ["protocol|grpc"]`, ``, "n/w 192.0.2.200:80/grpc w1 dc1/z1 [protocol=grpc]"},
		{"locality", `"ID": "w", "Port": 80, "Locality": {"Region": "r", "Zone": "y"}`, ``, "n/w 192.0.2.200:80/ w1 r/y []"},
		{"external", `"ID": "w", "Port": 80, "Meta": {"external": "yes"}`, ``, "n/w 192.0.2.200:80/ w1 dc1/z1 [external=yes] external"},
		{"warning", `"ID": "w", "Port": 80, "Weights": {"Passing": 10, "Warning": 3}`, `{"CheckID": "c", "Status": "warning"}`, "n/w 192.0.2.200:80/ w3 dc1/z1 []"},
		{"critical", `"ID": "w", "Port": 80`, `{"CheckID": "c", "Status": "passing"}, {"CheckID": "serfHealth", "Status": "critical"}`,
			"n/w 192.0.2.200:80/ w1 dc1/z1 [] down: check serfHealth is critical"},
		{"proxy", `"ID": "w", "Port": 80, "Kind": "connect-proxy"`, ``, ""},
		{"unreadable", `"ID": 5`, ``, "unread web[0]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := decode("web", []byte(`[{`+node+`, "Service": {`+test.service+`}, "Checks": [`+test.checks+`]}]`), false)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, in := range s.Instances {
				got = append(got, show(in))
			}
			for _, u := range s.Unread {
				got = append(got, "unread "+u.Place)
			}
			if text := strings.Join(got, "; "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
	s, err := decode("web", []byte(`[{"Service": {"ID": "w", "Port": 80}, "Checks": [{"CheckID": "c", "Status": "warning"}]}]`), true)
	if err != nil || s.Instances[0].Down == "" {
		t.Errorf("with consulOnlyPassing a warning counts as critical: %v, %v", s, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`[{"Node": {"Node": "n"}, "Service": {"ID": "w", "Port": 80, "Tags": ["a|b"], "Weights": {"Passing": 1}}, "Checks": [{"Status": "passing"}]}]`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _ = decode("web", body, false)
		_, _, _ = decodeNames(body)
	})
}

// TestNames: names are read whatever the values are, and an answer that is cut off or no object is an error.
func TestNames(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{`{"web": ["a"], "consul": [], "": [], "d\u0062": {"x": [1]}}`, "db web self"},
		{`{"web": null}`, "web"},
		{`null`, ""},
		{`{}`, ""},
		{`[]`, "error"},
		{`{"web": ["a"]`, "error"},
		{`{"web": }`, "error"},
		{``, "error"},
	} {
		names, self, err := decodeNames([]byte(test.body))
		if self {
			names = append(names, "self")
		}
		if err != nil {
			names = []string{"error"}
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", test.body, got, err, test.want)
		}
	}
}

// TestServicesOfNode: the checksum of a service depends on its instances and their last change, not on their order.
func TestServicesOfNode(t *testing.T) {
	const (
		web1  = `{"ID": "1", "Service": "web", "Tags": ["x"], "ModifyIndex": 7}`
		web2  = `{"Service": "web", "ID": "2", "ModifyIndex": 7}`
		newer = `{"ID": "2", "Service": "web", "ModifyIndex": 8}`
		db    = `{"ID": "3", "Service": "db", "ModifyIndex": 7}`
	)
	read := func(list ...string) marks {
		m, err := servicesOfNode([]byte(`{"Node": {"Node": "n"}, "Services": [` + strings.Join(list, ",") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	was := read(web1, web2, db)
	for _, test := range []struct {
		is   marks
		want []string
	}{
		{read(db, web2, web1), nil},
		{read(web1, newer, db), []string{"web"}},
		{read(web1, db), []string{"web"}},
		{read(web1, web2), []string{"db"}},
	} {
		if got := differences(was, test.is); !slices.Equal(got, test.want) {
			t.Errorf("%v differ, want %v", got, test.want)
		}
	}
	if m, err := servicesOfNode([]byte(`{"Node": null, "Services": null}`)); len(m) > 0 || err != nil {
		t.Errorf("a node that is gone has %v, %v", m, err)
	}
}
