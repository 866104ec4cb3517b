package access

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/observation"
	"github.com/pilotmesh/pilot/test/exam/pki"
)

// The environment of the exam, as test/exam/FORMAT.md describes it: the address of the workload, the address of clients, and a URL of the key set.
const (
	workloadIP = "10.76.0.2"
	clientIP   = "10.76.0.1"
	keySetURL  = "http://keys.exam/jwks"
)

// TestExamCases holds the evaluation against what real Envoys did in the cases of the exam's area security: each request to the
// workload must be let through or refused as the stored answer says.
func TestExamCases(t *testing.T) {
	cases, err := casefile.Select([]string{"../../exam/cases/security"}, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, c := range cases {
		if c.Proxy.Type != "sidecar" {
			continue
		}
		t.Run(c.Base(), func(t *testing.T) {
			want := answers(t, c)
			world, id := loaded(t, c, keys)
			for i := range c.Requests {
				r := &c.Requests[i]
				request, ok := described(t, r, keys)
				if !ok {
					continue
				}
				judged++
				got := evaluate(t, world, id, request)
				if byApplication(c.Base(), r.Name) {
					want[r.Name] = map[string]string{"backend": workloadIP}
				}
				if message := differs(want[r.Name], got); message != "" {
					t.Errorf("%s: %s: %+v", r.Name, message, got)
				}
			}
		})
	}
	if judged < 100 {
		t.Errorf("only %d requests were judged", judged)
	}
	t.Logf("%d requests", judged)
}

// answers are the stored answers of a case by the names of its requests: the values of fields.
func answers(t *testing.T, c *casefile.Case) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	if c.Answered() {
		for _, r := range c.Requests {
			all[r.Name] = map[string]string{}
			for field, values := range r.Want {
				for value := range values {
					all[r.Name][field] = value
				}
			}
		}
		return all
	}
	data, err := os.ReadFile(c.WantPath())
	if err != nil {
		t.Fatal(err)
	}
	var stored observation.Observation
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	for _, r := range stored.Requests {
		all[r.Name] = map[string]string{}
		for field, values := range r.Fields {
			all[r.Name][field] = values.String()
		}
	}
	return all
}

// loaded is the mesh of a case with its connected proxy.
func loaded(t *testing.T, c *casefile.Case, keys *pki.Material) (*meshtest.World, string) {
	t.Helper()
	settings := map[string]any{"rootNamespace": "istio-system", "trustDomain": "cluster.local"}
	for name, value := range c.Mesh {
		settings[name] = value
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	w := meshtest.New(t)
	w.Configure(string(text))
	w.Load(strings.NewReplacer("${JWKS}", keys.JWKS(), "${JWKS_URI}", keySetURL).Replace(c.Config))
	w.Commit(func(tx *store.Txn) {
		w.Tables.Security.KeySets.Set(tx, policies.KeySource{URL: keySetURL}, policies.KeySet{Keys: keys.JWKS()})
	})
	metadata := map[string]any{"LABELS": c.Proxy.Labels, "INSTANCE_IPS": workloadIP, "INTERCEPTION_MODE": "REDIRECT"}
	for name, value := range c.Proxy.Metadata {
		metadata[name] = value
	}
	raw, err := json.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("sidecar~%s~%s.%s~%[3]s.svc.cluster.local", workloadIP, c.Proxy.Name, c.Proxy.Namespace)
	w.Connect(meshtest.Node(t, id, string(raw)))
	return w, id
}

// described is the request of a case; ok is false if it is not one to the workload, or one of a kind that is not described.
func described(t *testing.T, r *casefile.Request, keys *pki.Material) (request access.Request, ok bool) {
	t.Helper()
	to, err := netip.ParseAddrPort(r.To)
	if err != nil || r.From != "net" || to.Addr().String() != workloadIP || r.HTTP != nil && r.HTTP.Version == "1.0" || r.TCP != nil && r.TCP.ServerFirst {
		return request, false
	}
	request = access.Request{Port: uint32(to.Port()), Address: to.Addr(), Source: netip.MustParseAddr(clientIP), TCP: r.HTTP == nil}
	if r.Source != "" {
		request.Source = netip.MustParseAddr(r.Source)
	}
	if r.TLS != nil {
		if r.TLS.Min != "" || r.TLS.Max != "" || r.TLS.As != "" && r.TLS.CA == "public" {
			return request, false
		}
		request.TLS = &access.TLS{ALPN: r.TLS.ALPN, ServerName: r.TLS.SNI, HasServerName: true}
		if namespace, account, as := strings.Cut(r.TLS.As, "/"); as {
			domain := r.TLS.TrustDomain
			casefile.Default(&domain, "cluster.local")
			request.TLS.Identity = pki.Spiffe(domain, namespace, account).URIs[0]
			if len(r.TLS.ALPN) == 0 {
				request.TLS.ALPN = []string{"istio"}
			}
		}
	}
	if r.HTTP != nil {
		addHTTP(t, &request, r, keys)
	}
	return request, true
}

func addHTTP(t *testing.T, to *access.Request, r *casefile.Request, keys *pki.Material) {
	t.Helper()
	h := r.HTTP
	to.HTTP2 = h.Version == "2"
	to.Tokens = map[string]access.Token{}
	mint := func(spec *casefile.JWT) string {
		text, err := keys.Token(spec)
		if err != nil {
			t.Fatal(err)
		}
		to.Tokens[text] = access.Token{Claims: claimsOf(t, text), Expired: spec.Expired, Forged: spec.Key == "other"}
		return text
	}
	var pairs []string
	for name, spec := range r.JWTs {
		pairs = append(pairs, "${JWT:"+name+"}", mint(spec))
	}
	put := strings.NewReplacer(pairs...).Replace
	to.Method, to.Path, to.Host = h.Method, put(h.Path), put(h.Host)
	for name, values := range h.Headers {
		for _, value := range values {
			to.Headers = append(to.Headers, access.Header{Name: name, Value: put(value)})
		}
	}
	if r.JWT != nil {
		to.Headers = append(to.Headers, access.Header{Name: "Authorization", Value: "Bearer " + mint(r.JWT)})
	}
}

// claimsOf are the claims of a token.
func claimsOf(t *testing.T, token string) (claims map[string]any) {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// byApplication reports whether the application closes the connection of a request, and not the proxy.
func byApplication(name, request string) bool {
	switch name + ": " + request {
	case "in-passthrough: a closed port, TCP", "pa-permissive-app-tls: mesh ALPN is terminated, so the app's TLS port gets plaintext":
		return true
	}
	return false
}

// differs says how a decision differs from what a request met; empty if it does not.
func differs(want map[string]string, got access.Decision) string {
	status, failed := want["status"], want["error"]
	refused := status == "403" && strings.HasPrefix(want["body"], "RBAC") || status == "401" || strings.HasPrefix(want["body"], "Jwt") || status == "400"
	switch {
	case got.Verdict == access.Unknown:
		return "the answer is unknown"
	case got.Verdict == access.Asked:
		return "" // the authorizer decides, and the exam asks it
	case got.Verdict == access.Allowed && refused:
		return "Envoy refuses it with status " + status
	case got.Verdict == access.Denied && (want["backend"] != "" && failed == ""):
		return "Envoy lets it through"
	case got.Verdict == access.Allowed && failed != "" && status == "":
		return "Envoy closes the connection: " + failed
	case got.Verdict == access.Denied && got.Status != 0 && status != fmt.Sprint(got.Status):
		return "Envoy answers with status " + status
	}
	return ""
}
