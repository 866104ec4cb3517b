package zookeeper

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// world is the content of a ZooKeeper: nodes by path.
type world map[string]string

// read reads the nodes that have changed, as a session does.
func (w world) read(m *mirror, nodes []node) registries.Services {
	touched := map[string]bool{}
	for len(nodes) > 0 {
		var next []node
		for _, n := range nodes {
			is := content{data: []byte(w[n.path])}
			_, is.exists = w[n.path]
			for at := range w {
				if rest, ok := strings.CutPrefix(at, n.path+"/"); ok {
					is.exists = true
					if child, _, _ := strings.Cut(rest, "/"); !slices.Contains(is.children, child) {
						is.children = append(is.children, child)
					}
				}
			}
			next = append(next, m.put(n, is, touched)...)
		}
		nodes = next
	}
	return m.services(touched)
}

func showAll(all registries.Services) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := all[key]
		if s == nil {
			lines = append(lines, key+" gone")
			continue
		}
		line := s.HostName + "." + s.Suffix
		for _, in := range s.Instances {
			line += " " + in.Address
			for _, p := range in.Ports {
				line += fmt.Sprintf(":%d/%s", p.Number, p.Protocol)
			}
			if in.Weight != "" {
				line += "*" + in.Weight
			}
			if in.Down != "" {
				line += "(" + in.Down + ")"
			}
		}
		for _, u := range s.Unread {
			line += " unread " + u.Place
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// TestMirror holds what becomes of nodes, and of their changes.
func TestMirror(t *testing.T) {
	f, err := registries.Decode([]byte(`registries: [{type: zookeeper, addresses: ["h:1"], zkServicesPath: [/services, /a/b]}]`))
	if err != nil {
		t.Fatal(err)
	}
	const greeter = "/dubbo/com.acme.Greeter/providers/"
	w := world{
		greeter + "dubbo%3A%2F%2F192.0.2.1%3A20880%2Fcom.acme.Greeter%3Fweight%3D50":                                 "",
		greeter + "dubbo%3A%2F%2F192.0.2.2%3A20880%2Fcom.acme.Greeter%3Fprefer.serialization%3Dfastjson2%2Chessian2": "",
		greeter + "tri%3A%2F%2F192.0.2.3%3A50051%2Fcom.acme.Greeter%3Fdefault.group%3DBlue%26version%3D1.0.0":        "",
		greeter + "dubbo%3A%2F%2F192.0.2.4%3A20880%2Fcom.acme.Greeter%3Fversion%3D0.0.0%26disabled%3Dtrue":           "",
		greeter + "empty%3A%2F%2F192.0.2.5%2Fcom.acme.Greeter":                                                       "",
		greeter + "rubbish%ZZ": "",
		"/dubbo/com.acme.Idle/consumers/consumer%3A%2F%2F192.0.2.9%2Fcom.acme.Idle": "",
		"/dubbo/mapping/com.acme.Greeter":                                           "app1",
		"/services/orders/1":                                                        `{"id":"1","address":"192.0.2.6","port":8080,"sslPort":8443,"payload":{"metadata":{"instance_status":"DOWN"}}}`,
		"/services/orders/2":                                                        `{`,
		"/services/app/192.0.2.7:20880": `{"address":"192.0.2.7","port":20880,"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":20880,\"protocol\":\"dubbo\"}]",
			"dubbo.metadata.revision":"r1","dubbo.metadata.storage-type":"remote"}}}`,
		"/dubbo/metadata/app/r1": `{"services":{"com.acme.Greeter:dubbo":{"name":"com.acme.Greeter","protocol":"dubbo","port":20880,"params":{}}}}`,
		"/a/b/rpc/1":             `{"address":"192.0.2.8","port":9090,"payload":null}`,
	}
	m := newMirror(f.Registries[0])
	want := func(got registries.Services, lines ...string) {
		t.Helper()
		if showAll(got) != strings.Join(lines, "\n") {
			t.Errorf("got\n%s\nwant\n%s", showAll(got), strings.Join(lines, "\n"))
		}
	}
	want(w.read(m, m.roots()),
		"rpc.a-b.zookeeper 192.0.2.8:9090/",
		"app.services.zookeeper 192.0.2.7:20880/tcp",
		"orders.services.zookeeper 192.0.2.6:8080/:8443/https(instance_status is DOWN) unread /services/orders/2",
		"com.acme.Greeter-Blue-1-0-0.dubbo 192.0.2.3:50051/http2",
		"com.acme.Greeter.dubbo 192.0.2.1:20880/DUBBO*0.5 192.0.2.2:20880/tcp 192.0.2.4:20880/DUBBO(disabled is true) 192.0.2.7:20880/DUBBO unread rubbish%ZZ",
	)
	delete(w, greeter+"tri%3A%2F%2F192.0.2.3%3A50051%2Fcom.acme.Greeter%3Fdefault.group%3DBlue%26version%3D1.0.0")
	got := w.read(m, []node{m.nodes[strings.TrimSuffix(greeter, "/")]})
	if s, ok := got["dubbo:com.acme.Greeter:1.0.0:Blue"]; !ok || s != nil {
		t.Errorf("the version without providers is not gone: %s", showAll(got))
	}
	delete(w, "/services/app/192.0.2.7:20880")
	want(w.read(m, []node{m.nodes["/services/app"]}), "app:/services/app gone",
		"com.acme.Greeter.dubbo 192.0.2.1:20880/DUBBO*0.5 192.0.2.2:20880/tcp 192.0.2.4:20880/DUBBO(disabled is true) unread rubbish%ZZ")
}

func FuzzParseProvider(f *testing.F) {
	f.Add("dubbo%3A%2F%2F%5B2001%3Adb8%3A%3A1%5D%3A20880%2Fcom.acme.Greeter%3Fgroup%3Dg%26dubbo.tag%3Da%253Db", []byte(`{"address":"a","payload":{"metadata":{"dubbo.endpoints":"[{}]"}}}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if p, ok, err := parseProvider(name); ok && err == nil && (p.Port == 0 || len(p.Instance().Ports) != 1) {
			t.Errorf("%q is a provider without a port", name)
		}
		_, _ = parseApplication("id", data)
		_, _ = parseMetadata(data)
	})
}
