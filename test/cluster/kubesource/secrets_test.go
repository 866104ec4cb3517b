package kubesource

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/controller/permission"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/identity"
	source "github.com/pilotmesh/pilot/internal/source"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// elsewhere is the cluster with a namespace other than the control plane's, whose Secrets its account may not read.
func (p *place) elsewhere() *place {
	p.Helper()
	other := *p
	other.namespace = p.newNamespace("elsewhere", nil)
	return &other
}

// mayRead lets the control plane of a namespace read the Secrets of the place, as manifests/secrets.yaml says.
func (p *place) mayRead(control string) {
	p.Helper()
	root, err := binaries.Root()
	p.must(err)
	p.kubectl("", "apply", "-f", filepath.Join(root, "manifests", "secrets.yaml"))
	p.kubectl("", "create", "rolebinding", "pilot-discovery-secrets", "--clusterrole=pilot-discovery-secrets", "--serviceaccount="+control+":pilot-discovery")
}

// pair is a new certificate with its key.
func (p *place) pair() certs.Pair {
	p.Helper()
	authority, err := certs.NewAuthority("clients")
	p.must(err)
	pair, err := authority.Issue(certs.Identity{Name: "client"})
	p.must(err)
	return pair
}

// put makes a Secret, or replaces it.
func (p *place) put(name string, data map[string]string) {
	p.Helper()
	s := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: name}, StringData: data}
	secrets := p.api.CoreV1().Secrets(p.namespace)
	if _, err := secrets.Get(p.Context(), name, meta.GetOptions{}); err == nil {
		p.must(secrets.Delete(p.Context(), name, meta.DeleteOptions{}))
	}
	_, err := secrets.Create(p.Context(), s, meta.CreateOptions{})
	p.must(err)
}

// change changes entries of a Secret.
func (p *place) change(name string, data map[string]string) {
	p.Helper()
	secrets := p.api.CoreV1().Secrets(p.namespace)
	s, err := secrets.Get(p.Context(), name, meta.GetOptions{})
	p.must(err)
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	_, err = secrets.Update(p.Context(), s, meta.UpdateOptions{})
	p.must(err)
}

// TestSecretsByName: of the wanted Secrets, and of no others, the source reports absence, content, the last good content of one that breaks, and why
// it may not read one.
func TestSecretsByName(t *testing.T) {
	control := on(t)
	p := control.elsewhere()
	p.put("other", map[string]string{"tls.crt": "x"})
	s := control.start(kubesource.Options{})
	key := p.registry(kube.KindSecret, "client")
	s.source.WantSecrets([]api.Key{key})
	s.until("the refusal", func() bool {
		row, ok := s.state[key].Value.(*kube.Secret)
		return ok && strings.Contains(row.Trouble, "may not read Secrets of namespace "+p.namespace) && s.problem("add the rule {apiGroups: [\"\"], resources: [secrets], verbs: [get, list, watch]}")()
	})
	p.mayRead(control.namespace)
	row := func(ok func(*kube.Secret) bool) func() bool {
		return func() bool { row, is := s.state[key].Value.(*kube.Secret); return is && ok(row) }
	}
	chain := func(of string) func() bool {
		return row(func(r *kube.Secret) bool {
			if r.Content == nil {
				return of == ""
			}
			got, _, _ := r.Content.Pair()
			return string(got) == of
		})
	}
	s.until("that there is none", row(func(r *kube.Secret) bool { return r.Content == nil && r.Trouble == "" }))
	s.until("the end of the problem", not(s.problem("may not be listed")))
	a, b := p.pair(), p.pair()
	p.put("client", map[string]string{"tls.crt": a.Cert, "tls.key": a.Key})
	s.until("the certificate", chain(a.Cert))
	p.change("client", map[string]string{"tls.crt": b.Cert, "tls.key": b.Key})
	s.until("the other certificate", chain(b.Cert))
	events := s.events(key)
	p.kubectl("", "label", "secret", "client", "some=label")
	p.change("client", map[string]string{"tls.key": a.Key})
	s.until("the problem", s.problem("data.tls.crt, data.tls.key: private key does not match"))
	if !s.now(chain(b.Cert)) || s.events(key) > events+1 {
		t.Errorf("the last good version is lost, or a label is a change: %d events, %d before", s.events(key), events)
	}
	p.must(p.api.CoreV1().Secrets(p.namespace).Delete(t.Context(), "client", meta.DeleteOptions{}))
	s.until("that it is gone", chain(""))
	s.until("the end of the problem", not(s.problem("data.tls.crt")))
	s.source.WantSecrets(nil)
	s.until("that nothing is known", s.lacks(key))
	for k := range s.state {
		if k.Kind == kube.KindSecret {
			t.Errorf("%v was read, and nobody asked for it", k)
		}
	}
}

// TestSecretPermissions checks that the API server is asked about the account in its namespace.
func TestSecretPermissions(t *testing.T) {
	p := on(t)
	accesses, err := cluster.NewAccesses(p.account())
	p.must(err)
	may := func(account string) bool {
		allowed, err := accesses.MayListSecrets(t.Context(), p.namespace, account)
		p.must(err)
		return allowed
	}
	if may("default") {
		t.Error("an account without a role may list Secrets")
	}
	p.kubectl("", "create", "role", "reader", "--resource=secrets", "--verb=list")
	p.kubectl("", "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+p.namespace+":default")
	p.until("the role to count", func() bool { return may("default") })
	if may("other") {
		t.Error("the role of one account counts for another")
	}
	p.kubectl("", "create", "rolebinding", "all", "--role=reader", "--group=system:serviceaccounts:"+p.namespace)
	p.until("the role of the group to count", func() bool { return may("other") })
}

// client is a proxy that asks for Secrets.
type client struct {
	*place
	mu  sync.Mutex
	got map[string]*resource.Resource
}

// Update implements loop.Watcher.
func (*client) Update(*resource.State) {}

// Answer implements loop.Watcher.
func (c *client) Answer(list []protocol.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range list {
		c.got[a.Name] = a.Resource
	}
}

// has waits until the proxy has a certificate, or the roots of others, under a name; an empty text means an answer without a resource.
func (c *client) has(name, cert string) {
	c.Helper()
	c.until(fmt.Sprintf("%s to be %.40q", name, cert), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		r, answered := c.got[name]
		if r == nil {
			return answered && cert == ""
		}
		msg, err := r.Proto()
		c.must(err)
		s := msg.(*tlsv3.Secret)
		if roots := s.GetValidationContext(); roots != nil {
			return string(roots.GetTrustedCa().GetInlineBytes()) == cert
		}
		return string(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes()) == cert
	})
}

// controlPlane is the part of the control plane that serves Secrets, with the account of the product.
type controlPlane struct {
	*place
	loop *loop.Loop
	log  *record
}

// record keeps a log.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// String returns the log.
func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (p *place) controlPlane() *controlPlane {
	p.Helper()
	log := &record{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	access := p.account()
	src, err := kubesource.New(kubesource.Options{Config: access, Cluster: clusterID, Namespace: p.namespace, Log: logger})
	p.must(err)
	tables := state.New(state.Options{ClusterID: clusterID, Sources: []string{src.Name()}})
	g := query.New(tables.DB, query.Options{})
	secrets := secret.Define(g, tables, secret.Options{Kubernetes: true})
	queries := class.Define(g, tables, class.Provider{Type: resource.Secret, Find: secrets.Find})
	running := loop.New(tables, g, queries, loop.Settings{Sources: []string{src.Name()}, Log: logger})
	accesses, err := cluster.NewAccesses(access)
	p.must(err)
	keeper := &permission.Keeper{Sink: running, Reviewer: accesses, Cluster: clusterID, Want: src.WantSecrets, Log: logger}
	keep := keeper.Keep(running)
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, run := range []func(){func() { _ = running.Run(ctx) }, func() { keep(ctx) }, func() { _ = src.Run(ctx, source.Sink(running)) }} {
		tasks.Go(run)
	}
	p.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	<-running.Synced()
	return &controlPlane{p, running, log}
}

// connect connects a proxy of an account, which asks for a secret.
func (c *controlPlane) connect(name, account, secret string) *client {
	c.Helper()
	node, err := proxy.Parse(proxy.Node{ID: "sidecar~10.0.0.1~" + name + "." + c.namespace + "~" + c.namespace + ".svc.cluster.local"})
	c.must(err)
	if account != "" {
		node.Identity = identity.Identity{TrustDomain: "cluster.local", Namespace: c.namespace, ServiceAccount: account}
	}
	out := &client{place: c.place, got: map[string]*resource.Resource{}}
	connection, err := c.loop.Attach(node, out)
	c.must(err)
	c.Cleanup(connection.Close)
	connection.Want(resource.Secret, []string{secret}, nil)
	return out
}

// awaitProblem waits until the text of a problem contains the given text.
func (c *controlPlane) awaitProblem(text string) {
	c.Helper()
	c.until("a problem: "+text, func() bool {
		found := false
		c.must(c.loop.Inspect(c.Context(), func(v *loop.View) {
			for _, p := range v.Problems.All() {
				found = found || strings.Contains(p.String(), text)
			}
		}))
		return found
	})
}

// TestSecretsAreServed is the way of a Secret to a proxy: its account may not list Secrets at first, then the control plane may not read
// them, then there is none, and then it comes, changes and goes. Proxies without an identity, and of other accounts, get nothing.
func TestSecretsAreServed(t *testing.T) {
	control := on(t)
	p := control.elsewhere()
	c := control.controlPlane()
	c.place = p
	const name = "kubernetes://client"
	reader, other, nobody := c.connect("reader", "default", name), c.connect("other", "stranger", name), c.connect("nobody", "", name)
	reader.has(name, "")
	c.awaitProblem("the service account " + p.namespace + "/default may not list Secrets there; bind it to a Role")
	p.kubectl("", "create", "role", "reader", "--resource=secrets", "--verb=list")
	p.kubectl("", "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+p.namespace+":default")
	c.awaitProblem("bind its account to the ClusterRole pilot-discovery-secrets of manifests/secrets.yaml there")
	p.mayRead(control.namespace)
	c.awaitProblem("there is no Secret " + p.namespace + "/client")
	a, b := p.pair(), p.pair()
	p.put("client", map[string]string{"tls.crt": a.Cert, "tls.key": a.Key})
	reader.has(name, a.Cert)
	p.change("client", map[string]string{"tls.crt": b.Cert, "tls.key": b.Key})
	reader.has(name, b.Cert)
	other.has(name, "")
	nobody.has(name, "")
	c.awaitProblem("the service account " + p.namespace + "/stranger may not list Secrets there")
	c.awaitProblem("the proxy has not shown who it is")
	p.kubectl("", "delete", "rolebinding", "reader")
	reader.has(name, "") // when the permission is looked for again
	p.kubectl("", "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+p.namespace+":default")
	reader.has(name, b.Cert)
	p.must(p.api.CoreV1().Secrets(p.namespace).Delete(t.Context(), "client", meta.DeleteOptions{}))
	reader.has(name, "")
	for _, pair := range []certs.Pair{a, b} {
		if line := strings.Split(pair.Key, "\n")[1]; strings.Contains(c.log.String(), line) {
			t.Error("the log has a key")
		}
	}
}

// TestConfigMapsAreServed is the way of the authorities in a ConfigMap to a proxy, whose account needs no permission: at first the control plane may
// not read it, then there is none, and then it comes, changes, breaks and goes. Nothing else of it is taken in. Proxies without an identity get
// nothing.
func TestConfigMapsAreServed(t *testing.T) {
	control := on(t)
	p := control.elsewhere()
	c := control.controlPlane()
	c.place = p
	name := "configmap://" + p.namespace + "/clients-cacert"
	reader, nobody := c.connect("reader", "default", name), c.connect("nobody", "", name)
	reader.has(name, "")
	c.awaitProblem("bind its account to the ClusterRole pilot-discovery-configmaps of manifests/secrets.yaml there")
	root, err := binaries.Root()
	p.must(err)
	p.kubectl("", "apply", "-f", filepath.Join(root, "manifests", "secrets.yaml"))
	p.kubectl("", "create", "rolebinding", "pilot-discovery-configmaps", "--clusterrole=pilot-discovery-configmaps", "--serviceaccount="+control.namespace+":pilot-discovery")
	c.awaitProblem("there is no ConfigMap " + p.namespace + "/clients")
	authority := func() string {
		a, err := certs.NewAuthority("clients")
		p.must(err)
		return a.Pair().Cert
	}
	maps, first, second := p.api.CoreV1().ConfigMaps(p.namespace), authority(), authority()
	m, err := maps.Create(t.Context(), &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "clients"}, Data: map[string]string{"ca.crt": first, "tls.key": "x"}}, meta.CreateOptions{})
	p.must(err)
	reader.has(name, first)
	write := func(data map[string]string) {
		m.Data = data
		m, err = maps.Update(t.Context(), m, meta.UpdateOptions{})
		p.must(err)
	}
	write(map[string]string{"ca.crt": second})
	reader.has(name, second)
	write(map[string]string{"ca.crt": "nonsense"})
	c.awaitProblem("data.ca.crt: it has no PEM block; write PEM certificates into it; the last good version stays in force")
	reader.has(name, second)
	nobody.has(name, "")
	p.must(maps.Delete(t.Context(), "clients", meta.DeleteOptions{}))
	reader.has(name, "")
}
