package boot

import (
	"encoding/json"
	"strings"
	"testing"
)

// admin is an admin interface at the port that the agent expects.
const admin = `admin: {address: {socket_address: {address: "{{ .localhost }}", port_value: {{ .admin_port }}}}}`

// TestTemplate: Envoy gets the output of the template, and values have the names of Istio.
func TestTemplate(t *testing.T) {
	c := cases(t)["ipv6"]
	c.Template = admin + `
node: {id: "{{ .nodeID }}", cluster: {{ .cluster }}, metadata: {{ .meta_json_str }}, locality: {region: {{ .region }}, zone: {{ .zone }}}}
x: ["{{ .wildcard }}", {{ .dns_lookup_family }}, {{ .status_port }}, {{ .envoy_status_port }}, {{ .envoy_prometheus_port }}, "{{ .xds_socket }}", "{{ .sds_socket }}"]
same: {{ toJSON .bootstrap.node }}
`
	text, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Admin, Node, Same json.RawMessage
		X                 []any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if string(got.Node) == "" || strings.Join(strings.Fields(string(got.Node)), "") != strings.Join(strings.Fields(string(got.Same)), "") {
		t.Errorf("%s\n%s", got.Node, got.Same)
	}
	if want := `["::","V6_ONLY",15020,15021,15090,"./etc/istio/proxy/XDS","./var/run/secrets/workload-spiffe-uds/socket"]`; mustJSON(t, got.X) != want {
		t.Errorf("%s\n%s", mustJSON(t, got.X), want)
	}
	if !strings.Contains(string(got.Admin), `"::1"`) || !strings.Contains(string(got.Admin), "15000") {
		t.Errorf("%s", got.Admin)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTemplateMistakes: a template that yields no valid bootstrap is refused with the reason.
func TestTemplateMistakes(t *testing.T) {
	for template, want := range map[string]string{
		"{{ .nodeID":                           "template:1: unclosed action",
		"{{ .bootstrap.node.id.x }}":           "can't evaluate field x",
		admin + "\nx: {{ .nothing }}":          "line 2 of its result uses a value that does not exist",
		"a: b: c":                              "its result: ",
		"[1]":                                  "its result is not a bootstrap",
		"{}":                                   "its result has no port of Envoy's admin interface",
		"admin: {address: {pipe: {path: /a}}}": "its result has no port of Envoy's admin interface",
		strings.Replace(admin, "_port }}", "_port }}1", 1): "has the admin interface on port 150001, but the agent expects it on 15000",
	} {
		c := cases(t)["usual"]
		c.Template = template
		if _, err := c.JSON(); err == nil || !strings.HasPrefix(err.Error(), "the template of the bootstrap: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
}

// FuzzTemplate: every template yields a bootstrap or an error.
func FuzzTemplate(f *testing.F) {
	for _, template := range []string{admin, "{{ .nodeID", "{{ range .bootstrap.static_resources.clusters }}{{ .name }}{{ end }}", "a: &a [*a]", "{{ toJSON .config }}"} {
		f.Add(template)
	}
	f.Fuzz(func(t *testing.T, template string) {
		c := Config{AdminPort: 15000, Template: "\n" + template}
		if text, err := c.JSON(); err == nil && !json.Valid(text) {
			t.Errorf("not JSON: %s", text)
		}
	})
}

// TestGRPC: the bootstrap of a gRPC library names sockets and files by absolute paths, and certificates only if there are any.
func TestGRPC(t *testing.T) {
	c := cases(t)["usual"]
	for _, f := range []Files{{}, {Certificate: "/c/cert-chain.pem", Key: "/c/key.pem", Roots: "/c/root-cert.pem"}} {
		text, err := c.GRPC(f)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			XDSServers []struct {
				URI string `json:"server_uri"`
			} `json:"xds_servers"`
			Node struct {
				Metadata map[string]any
				Locality map[string]string
			}
			Providers map[string]struct {
				Plugin string            `json:"plugin_name"`
				Config map[string]string `json:"config"`
			} `json:"certificate_providers"`
			Template string `json:"server_listener_resource_name_template"`
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.XDSServers) != 1 || !strings.HasPrefix(got.XDSServers[0].URI, "unix:///") || !strings.HasSuffix(got.XDSServers[0].URI, "/etc/istio/proxy/XDS") {
			t.Errorf("%+v", got.XDSServers)
		}
		if got.Node.Metadata["GENERATOR"] != "grpc" || got.Node.Metadata["NAMESPACE"] != "shop" || got.Node.Locality["region"] != "r1" || got.Template != inboundListener {
			t.Errorf("%+v", got)
		}
		if p := got.Providers["default"]; p.Config["certificate_file"] != f.Certificate || p.Config["private_key_file"] != f.Key ||
			p.Config["ca_certificate_file"] != f.Roots || (p.Plugin == "file_watcher") != (f != Files{}) {
			t.Errorf("%+v", p)
		}
	}
}
