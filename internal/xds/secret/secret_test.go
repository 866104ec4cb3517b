package secret_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/security/credential"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
)

const cluster = "own"

// material is a certificate that signs itself, with its key, as PEM.
func material(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"shop.example.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

type world struct {
	*meshtest.World
	t *testing.T
}

func newWorld(t *testing.T, o secret.Options) *world {
	return &world{meshtest.NewWith(t, meshtest.Options{ClusterID: cluster, Providers: func(g *query.Graph, tables *state.Tables) []class.Provider {
		q := secret.Define(g, tables, o)
		return []class.Provider{{Type: resource.Secret, Find: q.Find, PullSecret: q.PullSecret}}
	}}), t}
}

// put commits a Secret; without entries, that there is none.
func (w *world) put(cluster, namespace, name string, entries map[string]string) {
	w.t.Helper()
	data := map[string][]byte{}
	for k, v := range entries {
		data[k] = []byte(v)
	}
	row := &kube.Secret{}
	if entries != nil {
		row.Content, _ = credential.Parse(data)
	}
	w.Observe(map[api.Key]kube.Value{{Kind: kube.KindSecret, Namespace: namespace, Name: name, Cluster: cluster}: row})
}

// roots is a DestinationRule that names a ConfigMap beside it.
const roots = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: named, namespace: depot}
spec: {host: a.example.com, trafficPolicy: {tls: {mode: SIMPLE, credentialName: "configmap://depot/named"}}}
`

// putRoots commits a ConfigMap of the cluster; without entries, that there is none.
func (w *world) putRoots(namespace, name string, entries map[string]string) {
	row := &kube.Secret{}
	if entries != nil {
		row.Content, _ = credential.ParseRoots(entries)
	}
	w.Observe(map[api.Key]kube.Value{{Kind: kube.KindConfigMap, Namespace: namespace, Name: name, Cluster: cluster}: row})
}

// permit commits whether an account may read Secrets.
func (w *world) permit(namespace, account string, p state.Permission) {
	b := w.Batch()
	b.Events = []source.Event{state.PermissionEvent(connected.Account{Namespace: namespace, Name: account}, &p)}
	w.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, b) })
}

// asks makes a connected proxy ask for a secret, and returns the last answer from then on. account, as NAMESPACE/NAME, is its identity; empty
// if it has none.
func (w *world) asks(id, account, name string) (last func() string) {
	w.t.Helper()
	return w.asksFor(resource.Secret, id, account, name)
}

// asksFor is the same for a resource of any type.
func (w *world) asksFor(of resource.Type, id, account, name string) (last func() string) {
	w.t.Helper()
	p := *meshtest.Node(w.t, "sidecar~10.1.0.1~"+id+"~"+strings.Split(id, ".")[1]+".svc.cluster.local", "")
	if namespace, of, ok := strings.Cut(account, "/"); ok {
		p.Identity = identity.Identity{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: of}
	}
	key := connected.WantKey{Connection: p.ID, ResourceKey: connected.ResourceKey{Type: uint8(of), Name: name}}
	w.Commit(func(tx *store.Txn) {
		w.Tables.Proxies.Set(tx, p.ID, &p)
		w.Tables.Wants.Set(tx, key, connected.Want{Proxy: p.ID})
	})
	got := "waits"
	w.Queries.Answers.Observe(key, func(a class.Answer, ok bool) { got = w.show(a, ok) })
	w.Commit(func(*store.Txn) {})
	return func() string { return got }
}

// show describes an answer, with the first line of its content.
func (w *world) show(a class.Answer, ok bool) string {
	switch {
	case !ok:
		return "waits"
	case a.Denied:
		return "denied: " + a.Reason
	case a.Resource == nil:
		return "none: " + a.Reason
	}
	msg, err := a.Resource.Proto()
	if err != nil {
		w.t.Fatal(err)
	}
	s, ok := msg.(*tlsv3.Secret)
	if !ok {
		return meshtest.YAML(w.t, a.Resource)
	}
	if c := s.GetTlsCertificate(); c != nil {
		staple := ""
		if c.OcspStaple != nil {
			staple = " stapled " + string(c.OcspStaple.GetInlineBytes())
		}
		return fmt.Sprintf("%s: pair %s%s%s", s.Name, c.CertificateChain.GetInlineBytes(), c.PrivateKey.GetInlineBytes(), staple)
	}
	v := s.GetValidationContext()
	return fmt.Sprintf("%s: roots %s%s", s.Name, v.TrustedCa.GetInlineBytes(), v.Crl.GetInlineBytes())
}

// request is a proxy's request, and the beginning of the answer to it.
type request struct{ account, name, want string }

func whoGetsWhat(cert, key, other string) []request {
	return []request{
		{"shop/any", "kubernetes://files", "kubernetes://files: pair " + cert + key},
		{"shop/any", "kubernetes://shop/files", "kubernetes://shop/files: pair " + cert + key},
		{"shop/any", "kubernetes://files-cacert", "kubernetes://files-cacert: roots " + cert},
		{"shop/any", "kubernetes://keyless", "none: shop/keyless has no certificate"},
		{"shop/any", "kubernetes://half", "none: the certificate or the key of shop/half cannot be used"},
		{"shop/any", "kubernetes://half-cacert", "none: shop/half has no roots"},
		{"shop/reader", "kubernetes://both", "kubernetes://both: pair " + cert + key},
		{"shop/reader", "kubernetes://both-cacert", "kubernetes://both-cacert: roots " + other},
		{"shop/reader", "kubernetes://one-cacert", "kubernetes://one-cacert: roots " + cert},
		{"shop/reader", "kubernetes://gone", "none: there is no Secret shop/gone"},
		{"shop/reader", "kubernetes://gone-cacert", "none: there is no Secret shop/gone"},
		{"shop/reader", "kubernetes://new", "waits"},
		{"shop/reader", "kubernetes://remote", "waits"},
		{"shop/other", "kubernetes://one", "denied: the service account shop/other may not list Secrets there"},
		{"shop/other", "kubernetes://gone", "denied: the service account shop/other may not list Secrets there"},
		{"shop/unknown", "kubernetes://one", "denied: it is not known whether the service account shop/unknown may list Secrets there: the API server is away"},
		{"shop/newcomer", "kubernetes://one", "waits"},
		{"shop/reader", "kubernetes://depot/one", "denied: the Secret is of namespace depot, and the proxy of shop"},
		{"shop/reader", "kubernetes://depot/none", "denied: the Secret is of namespace depot, and the proxy of shop"},
		{"", "kubernetes://files", "denied: the proxy has not shown who it is"},
		{"", "kubernetes://one", "denied: the proxy has not shown who it is"},
		{"shop/any", "default", "none: names of secrets that the control plane serves"},
		{"shop/other", "configmap://shop/roots-cacert", "configmap://shop/roots-cacert: roots " + other},
		{"shop/any", "configmap://shop/files-cacert", "configmap://shop/files-cacert: roots " + cert},
		{"shop/any", "configmap://shop/gone-cacert", "none: there is no ConfigMap shop/gone"},
		{"shop/any", "configmap://shop/rootless-cacert", "none: the roots of shop/rootless cannot be used"},
		{"shop/any", "configmap://shop/one-cacert", "waits"}, // the Secret of this name is something else
		{"shop/any", "configmap://depot/roots-cacert", "denied: the ConfigMap is of namespace depot, and the proxy of shop"},
		{"shop/any", "configmap://depot/named-cacert", "configmap://depot/named-cacert: roots " + cert},
		{"", "configmap://shop/roots-cacert", "denied: the proxy has not shown who it is"},
		{"", "configmap://depot/named-cacert", "denied: the proxy has not shown who it is"},
		{"shop/any", "configmap://shop/roots", "none: a ConfigMap has the certificates of authorities only"},
		{"shop/any", "configmap://roots-cacert", "none: it does not have the form configmap://NAMESPACE/NAME of a ConfigMap"},
		{"shop/any", "configmap://shop/a/b-cacert", "none: it does not have the form configmap://NAMESPACE/NAME of a ConfigMap"},
		{"shop/any", "configmap://shop/-cacert", "none: it does not have the form configmap://NAMESPACE/NAME of a ConfigMap"},
		{"shop/any", "sds://vault", "none: the service of an extension provider with sds.name \"vault\" would serve it"},
		{"shop/any", "sds://vault-cacert", "none: the service of an extension provider with sds.name \"vault\" would serve it"},
		{"shop/any", "kubernetes://../files", "none: it does not have the form"},
		{"shop/any", "kubernetes:///files", "none: it does not have the form"},
		{"shop/any", "kubernetes://shop/files/tls.key", "none: it does not have the form"},
		{"shop/any", "kubernetes://", "none: it does not have the form"},
		{"shop/any", "kubernetes://-cacert", "none: it does not have the form"},
	}
}

// TestWhoGetsWhat holds the rules by which a proxy gets a Secret.
func TestWhoGetsWhat(t *testing.T) {
	cert, key := material(t)
	other, _ := material(t)
	pair := map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert}
	allowed := state.Permission{Allowed: true}
	w := newWorld(t, secret.Options{Folder: true, Kubernetes: true})
	w.put("", "shop", "files", pair)
	w.put("", "shop", "keyless", map[string]string{"ca.crt": cert})
	w.put("", "shop", "half", map[string]string{"tls.crt": cert})
	w.put(cluster, "shop", "both", pair)
	w.put(cluster, "shop", "both-cacert", map[string]string{"cacert": other})
	w.put(cluster, "shop", "one", pair)
	w.put(cluster, "shop", "one-cacert", nil)
	w.put(cluster, "shop", "gone", nil)
	w.put(cluster, "shop", "gone-cacert", nil)
	w.put("elsewhere", "shop", "remote", pair)
	w.put(cluster, "depot", "one", pair)
	w.putRoots("shop", "roots", map[string]string{"ca.crt": other})
	w.putRoots("shop", "gone", nil)
	w.putRoots("shop", "rootless", map[string]string{"tls.crt": cert, "tls.key": key})
	w.putRoots("depot", "roots", map[string]string{"ca.crt": cert})
	w.putRoots("depot", "named", map[string]string{"ca.crt": cert})
	w.Apply(roots)
	w.permit("shop", "reader", allowed)
	w.permit("shop", "other", state.Permission{})
	w.permit("shop", "unknown", state.Permission{Trouble: "the API server is away"})
	for i, c := range whoGetsWhat(cert, key, other) {
		t.Run(c.account+" asks for "+strings.ReplaceAll(c.name, "/", "|"), func(t *testing.T) {
			if got := w.asks(fmt.Sprintf("web-%d.shop", i), c.account, c.name)(); !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	for _, p := range w.Problems() {
		if strings.Contains(p, "BEGIN") {
			t.Errorf("a problem shows a Secret: %s", p)
		}
	}
}

// TestPullSecret checks that the configuration of an extension has the credentials of registries for proxies that have shown who they are,
// and for no others.
func TestPullSecret(t *testing.T) {
	const name = "extensions.istio.io/trafficextension/shop.plugin~istio-translated-wasmplugin"
	docker := func(user string) map[string]string {
		return map[string]string{credential.DockerConfig: `{"auths":{"registry.test":{"username":"` + user + `"}}}`}
	}
	w := newWorld(t, secret.Options{Folder: true, Kubernetes: true})
	w.Apply(`
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: shop}
spec: {url: "oci://registry.test/image:1", imagePullSecret: credentials}
`)
	if key := (api.Key{Namespace: "shop", Name: "credentials"}); !w.Tables.Extensions.PullSecrets.Group(w.Graph.Glance(), struct{}{}).Has(key) {
		t.Error("the Secret is not read")
	}
	known, unknown := w.asksFor(resource.Extension, "web-0.shop", "shop/web", name), w.asksFor(resource.Extension, "web-1.shop", "", name)
	elsewhere := w.asksFor(resource.Extension, "web-2.depot", "depot/web", name)
	for _, step := range []struct {
		of      string
		entries map[string]string
		want    string
	}{
		{"elsewhere", docker("remote"), "waits"},
		{cluster, nil, "none: there is no Secret shop/credentials"},
		{cluster, map[string]string{"password": "x"}, "none: the Secret shop/credentials has no credentials of registries; add .dockerconfigjson"},
		{cluster, docker("first"), "first"},
		{cluster, docker("second"), "second"},
		{"", docker("third"), "third"},
	} {
		w.put(step.of, "shop", "credentials", step.entries)
		if got := known(); !strings.Contains(got, step.want) || step.entries[credential.DockerConfig] != "" && got != "waits" && !strings.Contains(got, "ISTIO_META_WASM_IMAGE_PULL_SECRET") {
			t.Errorf("got  %s\nwant %s", got, step.want)
		}
		if got := unknown(); !strings.HasPrefix(got, "denied: the extension has a pull secret") {
			t.Errorf("a proxy without identity: %s", got)
		}
		if got := elsewhere(); !strings.HasPrefix(got, "none: the extension does not exist") {
			t.Errorf("a proxy that the extension does not apply to: %s", got)
		}
	}
	w = newWorld(t, secret.Options{})
	w.Apply(`
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: shop}
spec: {url: "oci://registry.test/image:1", imagePullSecret: credentials}
`)
	if got := w.asksFor(resource.Extension, "web-0.shop", "shop/web", name)(); !strings.HasPrefix(got, "none: there is no folder shop/credentials") {
		t.Errorf("without Secrets: %s", got)
	}
}

func TestNothingConfigured(t *testing.T) {
	w := newWorld(t, secret.Options{})
	if got := w.asks("web-0.shop", "shop/web", "kubernetes://one")(); !strings.HasPrefix(got, "none: the control plane has no Secrets") {
		t.Error(got)
	}
	w = newWorld(t, secret.Options{Folder: true})
	if got := w.asks("web-0.shop", "shop/web", "kubernetes://one-cacert")(); !strings.HasPrefix(got, "none: there is no folder shop/one") {
		t.Error(got)
	}
}

// TestRotationCost checks that another version of a Secret runs the cell of the answer made of it, which all its proxies share, and the
// answers to them, and nothing else; and that a proxy whose answer is the same hears nothing.
func TestRotationCost(t *testing.T) {
	w := newWorld(t, secret.Options{Folder: true})
	w.Connect(meshtest.Node(t, "sidecar~10.1.0.1~class-0.shop~shop.svc.cluster.local", ""))
	cert, key := material(t)
	next, nextKey := material(t)
	w.put("", "shop", "one", map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert})
	w.put("", "shop", "two", map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert})
	var of []func() string
	for i := range 3 {
		for _, name := range []string{"one", "one-cacert", "two"} {
			of = append(of, w.asks(fmt.Sprintf("web-%d.shop", i), "shop/web", "kubernetes://"+name))
		}
	}
	was := w.Graph.Cost()
	w.put("", "shop", "one", map[string]string{"tls.crt": next, "tls.key": nextKey, "ca.crt": cert})
	ran := w.Graph.Cost()
	maps.DeleteFunc(ran, func(query string, n int) bool { ran[query] = n - was[query]; return n == was[query] })
	// Three proxies ask for the pair. The roots are the same, so their answers do not run.
	if got, want := fmt.Sprint(ran), "map[answer:3 secret:2 trouble:1]"; got != want {
		t.Errorf("these cells ran: %s, want %s", got, want)
	}
	for i, one := range of {
		if got, changed := one(), i%3 == 0; strings.Contains(got, next) != changed {
			t.Errorf("answer %d: %s", i, got)
		}
	}
	w.Check()
}

// TestProblems checks that problems name the proxies that cannot have a Secret, and why, once for each reason.
func TestProblems(t *testing.T) {
	w := newWorld(t, secret.Options{Folder: true})
	w.asks("web-0.shop", "shop/web", "kubernetes://one")
	w.asks("web-1.shop", "shop/web", "kubernetes://one")
	w.asks("web-2.shop", "", "kubernetes://one")
	w.asks("web-3.depot", "depot/web", "kubernetes://one")
	var got []string
	for _, p := range w.Problems() {
		got = append(got, strings.ReplaceAll(p, "warning: SDS \"kubernetes://one\": proxy sidecar~10.1.0.1~", ""))
	}
	slices.Sort(got)
	want := []string{
		"web-0.shop~shop.svc.cluster.local (1 others, too) asks for this secret, and cannot have it: there is no folder shop/one in --credentialsDir; what needs it fails, everything else continues",
		"web-2.shop~shop.svc.cluster.local asks for this secret, and may not have it: the proxy has not shown who it is; connect it to the control plane over TLS, with a certificate of the mesh or a token; what needs it fails, everything else continues",
		"web-3.depot~depot.svc.cluster.local asks for this secret, and cannot have it: there is no folder depot/one in --credentialsDir; what needs it fails, everything else continues",
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
}

// FuzzParseName checks that a name never leads to another namespace than it says, or out of the folder.
func FuzzParseName(f *testing.F) {
	for _, name := range []string{"kubernetes://a", "kubernetes://ns/a-cacert", "kubernetes://../../x", "kubernetes://ns/a/b", "kubernetes://a\x00b", "default"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, reason := secret.ParseName(name)
		if reason != "" {
			return
		}
		for _, of := range n.Secrets() {
			if strings.ContainsAny(n.Namespace+of, "/\\\x00") || of == "" || of[0] == '.' || n.Namespace == ".." {
				t.Errorf("%q leads to %q %q", name, n.Namespace, of)
			}
		}
	})
}
