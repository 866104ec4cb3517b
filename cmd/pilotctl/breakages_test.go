package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/run"
)

// bookshop is a small mesh in which everything is right.
const bookshop = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: bookshop}
spec:
  hosts: [reviews.bookshop.svc.cluster.local]
  ports: [{number: 9080, name: http, protocol: HTTP}, {number: 7000, name: tcp, protocol: TCP}]
  addresses: [10.70.0.1]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints:
  - {address: 10.1.0.1, labels: {app: reviews, version: v1, security.istio.io/tlsMode: istio}}
  - {address: 10.1.0.2, labels: {app: reviews, version: v2, security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: bookshop}
spec:
  host: reviews
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]
`

// breakage is one mistake in the bookshop.
type breakage struct {
	name string
	// kind, object and spec describe the object with the mistake; file is the whole document instead.
	kind, spec, file string
	// command is the first that a user would run, on the folder mesh, and cause is a text that its output must have.
	command, cause string
	// passes is true if the command succeeds all the same: nothing certainly fails.
	passes bool
}

// unconnected names the breakage whose cause is in every answer from files, because no proxy is connected to them.
const unconnected = "nobody connected"

// canI asks whether the shop may call the reviews.
const canI = "can-i --from bookshop/shop --to reviews.bookshop:9080 mesh"

// routeTo is a VirtualService that sends all requests to a destination.
func routeTo(destination string) string {
	return "{hosts: [reviews], http: [{route: [{destination: " + destination + "}]}]}"
}

func breakages() []breakage {
	const rule, check = "VirtualService", "analyze mesh"
	return append(networkBreakages(), []breakage{
		{name: "misspelt host", kind: rule, spec: routeTo("{host: revews}"), command: check, cause: "did you mean reviews"},
		{name: "host of a route, asked for one request", kind: rule, spec: routeTo("{host: revews}"), command: canI, cause: `there is no service "revews`},
		{name: "unknown subset", kind: rule, spec: routeTo("{host: reviews, subset: v4}"), command: check, cause: "its subsets are v1, v2"},
		{name: "unknown port", kind: rule, spec: routeTo("{host: reviews, port: {number: 9999}}"), command: check, cause: "its ports are 7000 (tcp), 9080 (http)"},
		{name: "misspelt field", kind: rule, spec: "{hosts: [reviews], http: [{route: [{wieght: 5, destination: {host: reviews}}]}]}", command: check, cause: "did you mean weight?"},
		{name: "two rules for a host", file: second("VirtualService", "first", routeTo("{host: reviews}")) + "---\n" + second("VirtualService", "second", routeTo("{host: reviews}")),
			command: check, cause: "VirtualService bookshop/first goes first", passes: true},
		{name: "look-ahead in a regular expression", kind: rule, spec: `{hosts: [reviews], http: [{match: [{uri: {regex: "/(?!admin).*"}}], route: [{destination: {host: reviews}}]}]}`,
			command: check, cause: "not an RE2 regular expression"},
		{name: "header too long for Envoy", kind: rule, spec: `{hosts: [reviews], http: [{route: [{destination: {host: reviews}}], headers: {request: {set: {x-big: "` + strings.Repeat("a", 20000) + `"}}}}]}`,
			command: check, cause: "Envoy takes at most 16384 bytes"},
		{name: "tab", file: "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n\tname: reviews\n", command: check, cause: "YAML indents by spaces"},
		{name: "misspelt kind", kind: "VirtualServise", spec: "{}", command: check, cause: "did you mean VirtualService?"},
		{name: "duration in words", kind: rule, spec: "{hosts: [reviews], http: [{timeout: 5 seconds, route: [{destination: {host: reviews}}]}]}", command: check, cause: "must be a duration like"},
		{name: "weight in words", kind: rule, spec: "{hosts: [reviews], http: [{route: [{weight: lots, destination: {host: reviews}}]}]}", command: check, cause: "must be a whole number"},
		{name: "namespace left out", file: "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews}\nspec: " + routeTo("{host: reviews}"), command: check, cause: "write metadata.namespace"},
		{name: "one object twice", file: second("DestinationRule", "reviews", "{host: reviews}"), command: check, cause: "declared already at mesh/bookshop.yaml"},
		{name: "rules for HTTP on a TCP port", kind: rule, spec: "{hosts: [reviews], http: [{match: [{port: 7000}], route: [{destination: {host: reviews}}]}]}", command: check, cause: "port 7000 of the hosts is not declared to speak HTTP", passes: true},
		{name: "rule behind one for everything", kind: rule, spec: "{hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}, {match: [{uri: {prefix: /new}}], route: [{destination: {host: reviews}}]}]}",
			command: check, cause: "http[0] has no match and takes every request", passes: true},
		{name: "share of an unknown subset", kind: rule, spec: "{hosts: [reviews], http: [{route: [{weight: 60, destination: {host: reviews, subset: v1}}, {weight: 30, destination: {host: reviews, subset: v5}}]}]}",
			command: check, cause: `subset "v5"`},
	}...)
}

// networkBreakages are mistakes about connections, endpoints, policies and visibility.
func networkBreakages() []breakage {
	const check = "analyze mesh"
	return []breakage{
		{name: "plain text against STRICT", file: second("PeerAuthentication", "strict", "{mtls: {mode: STRICT}}") + "---\n" + second("DestinationRule", "plain", "{host: reviews, trafficPolicy: {tls: {mode: DISABLE}}}"),
			command: canI, cause: "so that mutual TLS is automatic"},
		{name: "policy that denies", kind: "AuthorizationPolicy", spec: "{rules: [{from: [{source: {namespaces: [bank]}}]}]}", command: canI, cause: "no policy with the action ALLOW matches"},
		{name: "selector of a policy", kind: "AuthorizationPolicy", spec: "{selector: {matchLabels: {app: reveiws}}, rules: [{}]}", command: check, cause: "did you mean app=reviews", passes: true}, //nolint:misspell // the breakage is the misspelling
		{name: "labels of a subset", kind: "DestinationRule", spec: "{host: reviews.bookshop.svc.cluster.local, subsets: [{name: v9, labels: {version: v9}}]}", command: check, cause: "the values of version are v1, v2", passes: true},
		{name: "hidden by a Sidecar", kind: "Sidecar", spec: "{egress: [{hosts: [./other.bookshop.svc.cluster.local]}]}", command: canI, cause: "the Sidecar hides reviews", passes: true},
		{name: "not exported", file: strings.Replace(bookshop, "addresses:", "exportTo: [\".\"]\n  addresses:", 1), command: strings.Replace(canI, "bookshop/shop", "bank/teller", 1),
			cause: `add "bank" to its spec.exportTo`, passes: true},
		{name: unconnected, kind: "Sidecar", spec: "{egress: [{hosts: ['*/*']}]}", command: canI, cause: "no proxy is connected there", passes: true},
		{name: "mutual TLS without a file", kind: "DestinationRule", spec: "{host: reviews, trafficPolicy: {tls: {mode: MUTUAL, privateKey: /key.pem}}}", command: check, cause: "mutual TLS needs a certificate"},
		{name: "keys that are no keys", kind: "RequestAuthentication", spec: "{jwtRules: [{issuer: me, jwksUri: 'ftp://keys.example/set'}]}", command: check, cause: "write http://HOST/PATH or https://HOST/PATH"},
		{name: "token for a folder without a control plane", command: "token create --service-account bookshop/shop --stateDir mesh", cause: "no control plane that accepts local tokens has its state in mesh"},
		{name: "misspelt command", command: "token crate", cause: "did you mean create?"},
	}
}

// second is a document of the bookshop.
func second(kind, name, spec string) string {
	group := "networking.istio.io/v1"
	if strings.HasSuffix(kind, "Policy") || strings.HasSuffix(kind, "Authentication") {
		group = "security.istio.io/v1"
	}
	return "apiVersion: " + group + "\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: bookshop}\nspec: " + spec + "\n"
}

// TestBreakages: the first command that a user would run shows the cause of a mistake, which it does not show without the mistake. Mistakes
// that only a running control plane or agent can see have tests there.
func TestBreakages(t *testing.T) {
	for _, b := range breakages() {
		t.Run(b.name, func(t *testing.T) {
			if b.file == "" && b.kind != "" {
				b.file = second(b.kind, "mistake", b.spec)
			}
			mesh := map[string]string{"bookshop.yaml": bookshop, "zz-mistake.yaml": b.file}
			if strings.Contains(b.file, "exportTo") {
				delete(mesh, "bookshop.yaml") // the mistake is in the mesh itself
			}
			out, code := pilotctl(t, mesh, b.command)
			if !strings.Contains(out, b.cause) || (code == run.ExitDone) != b.passes {
				t.Errorf("pilotctl %s ends with %d, and must show %q:\n%s", b.command, code, b.cause, out)
			}
			if b.file == "" || b.name == unconnected {
				return
			}
			if out, _ := pilotctl(t, map[string]string{"bookshop.yaml": bookshop}, b.command); strings.Contains(out, b.cause) {
				t.Errorf("pilotctl %s shows %q without the mistake:\n%s", b.command, b.cause, out)
			}
		})
	}
}

// pilotctl runs a command line in a folder with a mesh. It returns the output and the exit code.
func pilotctl(t *testing.T, mesh map[string]string, command string) (string, int) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("mesh", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range mesh {
		if err := os.WriteFile(filepath.Join("mesh", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c := root()
	c.SetOut(&out)
	c.SetErr(&out)
	code := run.Command(t.Context(), c, strings.Fields(command))
	return out.String(), code
}
