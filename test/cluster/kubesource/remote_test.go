package kubesource

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	source "github.com/pilotmesh/pilot/internal/source"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/source/remote"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/cluster/standard"
)

// remoteID is the ID of the second cluster.
const remoteID = "c2"

// second starts a second cluster without nodes, with a namespace of the name of the first one's.
func (p *place) second() *place {
	p.Helper()
	c, err := standard.Start(p.Context(), cluster.Options{})
	p.must(err)
	p.Cleanup(func() {
		if err := c.Close(); err != nil {
			p.Error(err)
		}
	})
	s := &place{T: p.T, c: c, api: c.Client(), namespace: p.namespace}
	_, err = s.api.CoreV1().Namespaces().Create(p.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: p.namespace}}, meta.CreateOptions{})
	s.must(err)
	return s
}

// serve makes the Service "web" of a cluster with an endpoint at an address.
func (p *place) serve(address string) {
	p.Helper()
	p.apply(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%q], conditions: {ready: true}}]
`, address))
}

// reader makes an account that may read what the control plane reads, and returns its token.
func (p *place) reader(name string) (token string) {
	p.Helper()
	text, err := mesh.Permissions(p.namespace)
	p.must(err)
	p.apply(text)
	p.apply(fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[2]s-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pilot-discovery-%[2]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, name, p.namespace))
	made, err := p.api.CoreV1().ServiceAccounts(p.namespace).CreateToken(p.Context(), name, &authentication.TokenRequest{}, meta.CreateOptions{})
	p.must(err)
	return made.Status.Token
}

// kubeconfig returns a kubeconfig for the cluster. change may change it.
func (p *place) kubeconfig(token string, change func(*clientcmdapi.AuthInfo)) []byte {
	p.Helper()
	c := rest.AnonymousClientConfig(p.c.Config())
	user := &clientcmdapi.AuthInfo{Token: token}
	if change != nil {
		change(user)
	}
	out, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	p.must(err)
	return out
}

// describe writes the Secret of a name that describes clusters.
func (p *place) describe(name string, clusters map[string][]byte) {
	p.Helper()
	s := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"istio/multiCluster": "true"}}, Data: clusters}
	secrets := p.api.CoreV1().Secrets(p.namespace)
	_, err := secrets.Update(p.Context(), s, meta.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(p.Context(), s, meta.CreateOptions{})
	}
	p.must(err)
}

// clusters runs the sources of both clusters, and puts the batches that they pass on into a mesh.
type clusters struct {
	*place
	world *meshtest.World
	log   *bytes.Buffer

	mu      sync.Mutex
	news    chan struct{}
	waiting []source.Batch

	// The state of the batches taken so far.
	synced   map[string]bool
	problems map[string]bool
	// removals counts, by source, the batches that remove objects.
	removals map[string]int
}

// Apply implements source.Sink.
func (c *clusters) Apply(b source.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, b)
	close(c.news)
	c.news = make(chan struct{})
}

// take applies the batches passed on so far, and returns a channel that is closed when there are more.
func (c *clusters) take() <-chan struct{} {
	c.mu.Lock()
	batches, news := c.waiting, c.news
	c.waiting = nil
	c.mu.Unlock()
	for _, b := range batches {
		c.world.Commit(func(tx *store.Txn) { c.world.Tables.Apply(tx, b) })
		c.synced[b.Source] = b.Synced
		for _, p := range b.Problems {
			if c.problems[p.Problem.String()] = !p.Gone; p.Gone {
				delete(c.problems, p.Problem.String())
			}
		}
		if slices.ContainsFunc(b.Events, source.Event.Removed) {
			c.removals[b.Source]++
		}
	}
	return news
}

func (c *clusters) until(what string, ok func() bool) {
	c.Helper()
	limit := time.After(patience)
	for {
		news := c.take()
		if ok() {
			return
		}
		select {
		case <-news:
		case <-limit:
			c.Fatalf("waiting for %s: endpoints %q, synced %v, problems %v", what, c.endpoints(), c.synced, c.problems)
		}
	}
}

// endpoints lists the endpoints of the Service with their clusters.
func (c *clusters) endpoints() string {
	r := c.world.Graph.Naive()
	s, ok := c.world.Queries.Services.Service.Get(r, service.HostView{Host: "web." + c.namespace + ".svc.cluster.local"})
	if !ok {
		return "no service"
	}
	var list []string
	for _, e := range c.world.Queries.Services.Endpoints(r, s, 80) {
		list = append(list, fmt.Sprintf("%s in %s", e.Address, e.Cluster))
	}
	return strings.Join(list, ", ")
}

func (c *clusters) has(endpoints string) func() bool {
	return func() bool { return c.endpoints() == endpoints }
}

func (c *clusters) problem(parts ...string) func() bool {
	return func() bool {
		for p := range c.problems {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(p, part) }) {
				return true
			}
		}
		return false
	}
}

// runClusters runs the sources. timeout is how long remote clusters delay Synced.
func (p *place) runClusters(timeout time.Duration) *clusters {
	p.Helper()
	c := &clusters{
		place: p, world: meshtest.NewWith(p.T, meshtest.Options{ClusterID: clusterID}), log: &bytes.Buffer{}, news: make(chan struct{}),
		synced: map[string]bool{}, problems: map[string]bool{}, removals: map[string]int{},
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(&locked{to: c.log}, p.Output()), nil))
	remotes := remote.New(remote.Options{Local: clusterID, Source: kubesource.Options{Namespace: p.namespace, Log: log}, Timeout: timeout, Log: log})
	local, err := kubesource.New(kubesource.Options{
		Config: p.account(), Cluster: clusterID, Namespace: p.namespace, Remote: remotes.Set, Log: log,
	})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, one := range []source.Source{local, remotes} {
		running.Go(func() {
			if err := one.Run(ctx, c); err != nil {
				p.Error(err)
			}
		})
	}
	p.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// TestRemoteCluster adds a second cluster by a Secret, gives it other credentials, breaks its kubeconfig, stops its API server and
// removes the Secret, and watches the endpoints of a Service that both clusters have.
func TestRemoteCluster(t *testing.T) {
	p := on(t)
	other := p.second()
	p.serve("10.1.0.1")
	other.serve("10.2.0.1")
	const one, both, changed = "10.1.0.1 in c1", "10.1.0.1 in c1, 10.2.0.1 in c2", "10.1.0.1 in c1, 10.2.0.2 in c2"
	first := other.reader("first")

	c := p.runClusters(0)
	c.until("both sources are complete without a remote cluster", func() bool { return c.synced["kubernetes/c1"] && c.synced["remote clusters"] })
	if got := c.endpoints(); got != one {
		t.Fatalf("endpoints %q", got)
	}
	p.describe("west", map[string][]byte{remoteID: other.kubeconfig(first, nil)})
	c.until("endpoints of both clusters", c.has(both))

	p.refuseKubeconfigs(c, other, first)
	other.serve("10.2.0.2")
	c.until("a change, read with the last good kubeconfig", c.has(changed))

	// Other credentials. The old ones end with their account.
	p.describe("west", map[string][]byte{remoteID: other.kubeconfig(other.reader("second"), nil)})
	c.until("the problem is resolved", func() bool { return len(c.problems) == 0 })
	other.kubectl("", "delete", "serviceaccount", "first")
	other.serve("10.2.0.1")
	c.until("a change, read with other credentials", c.has(both))
	if n := c.removals["kubernetes/c2"]; n != 0 {
		t.Errorf("%d batches removed objects of the second cluster, which has lost none", n)
	}

	p.outage(c, other, one, both)

	// The cluster goes.
	p.kubectl("", "delete", "secret", "west")
	c.until("endpoints of one cluster", c.has(one))
	if n := c.removals["kubernetes/c2"]; n != 1 {
		t.Errorf("the second cluster was removed by %d batches", n)
	}
	for k := range c.world.Tables.Kube.Services.All() {
		if k.Cluster == remoteID {
			t.Errorf("%v is left", k)
		}
	}
	if strings.Contains(c.log.String(), first) {
		t.Error("the log has a token")
	}
	c.world.Check()
}

// refuseKubeconfigs describes clusters by kubeconfigs that are refused: of a third cluster, and for the one that is read.
func (p *place) refuseKubeconfigs(c *clusters, other *place, first string) {
	p.Helper()
	exec := func(u *clientcmdapi.AuthInfo) {
		u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
	}
	p.describe("third", map[string][]byte{"c3": other.kubeconfig("", exec), clusterID: other.kubeconfig(first, nil), remoteID: []byte("token: " + first)})
	c.until("the problem of a plugin", c.problem("Secret "+p.namespace+"/third", "data[c3]", "(exec)", "the cluster is not read"))
	c.until("the problem of the cluster's own ID", c.problem("data[c1]", "the ID of the cluster of the control plane itself"))
	c.until("the problem of a cluster that is read already", c.problem("data[c2]", "Secret "+p.namespace+"/west describes the cluster c2 too, and is used"))
	p.kubectl("", "delete", "secret", "third")
	c.until("the problems are resolved", func() bool { return len(c.problems) == 0 })
	p.describe("west", map[string][]byte{remoteID: []byte("users: [" + first)})
	c.until("the problem of text", c.problem("Secret "+p.namespace+"/west", "not a kubeconfig", "the cluster is read with the last good kubeconfig"))
}

// outage stops the API server of the second cluster, and starts it again. one and both are the endpoints of the first cluster and of both.
func (p *place) outage(c *clusters, other *place, one, both string) {
	p.Helper()
	other.c.StopAPIServer()
	c.until("the outage is reported", c.problem("cluster c2", "cannot reach the API server", "its last known state, which is stale, is served"))
	if got := c.endpoints(); got != both {
		p.Errorf("endpoints during the outage: %q", got)
	}
	late := p.runClusters(time.Second)
	late.until("a control plane that starts during the outage is complete", func() bool { return late.synced["kubernetes/c1"] && late.synced["remote clusters"] })
	if got := late.endpoints(); got != one {
		p.Errorf("endpoints of a control plane that starts during the outage: %q", got)
	}
	p.must(other.c.StartAPIServer(p.Context()))
	c.until("the API server is back", func() bool { return len(c.problems) == 0 })
	late.until("endpoints of both clusters", late.has(both))
	if n := c.removals["kubernetes/c2"]; n != 0 {
		p.Errorf("%d batches removed objects of the second cluster during its outage", n)
	}
}
