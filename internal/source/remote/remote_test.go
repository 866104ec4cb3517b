package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/source/remote"
)

// token is the credential of all kubeconfigs. It must be in no text.
const token = "do-not-show-this"

// sources runs a source of remote clusters whose API servers do not answer.
type sources struct {
	*testing.T
	*remote.Clusters
	server string // of all clusters

	mu      sync.Mutex
	log     bytes.Buffer
	present []string // the problems of Secrets
	synced  bool
	changed chan struct{}
}

// start runs a source until the test ends. timeout is how long clusters that do not answer delay Synced.
func start(t *testing.T, timeout time.Duration) *sources {
	s := &sources{T: t, server: refusing(t), changed: make(chan struct{}, 1)}
	log := slog.New(slog.NewTextHandler(lockedWriter{s}, nil))
	s.Clusters = remote.New(remote.Options{Local: "local", Timeout: timeout, Source: kube.Options{Log: log}, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Clusters.Run(ctx, s) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(s.log.String(), token) {
			t.Errorf("a credential is in the log:\n%s", s.log.String())
		}
	})
	return s
}

// refusing returns the URL of a server that refuses connections.
func refusing(t *testing.T) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "https://" + l.Addr().String()
}

type lockedWriter struct{ *sources }

// Write implements io.Writer.
func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.notify()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// Apply implements source.Sink.
func (s *sources) Apply(b source.Batch) {
	s.mu.Lock()
	if b.Source == s.Clusters.Name() {
		for _, e := range b.Problems {
			text := e.Problem.String()
			if e.Gone {
				s.present = slices.DeleteFunc(s.present, func(p string) bool { return p == text })
			} else {
				s.present = append(s.present, text)
			}
		}
		s.synced = s.synced || b.Synced
	}
	s.mu.Unlock()
	s.notify()
}

func (s *sources) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// removed reports whether the log says that a cluster was removed. The state is locked.
func (s *sources) removed(cluster string) bool {
	return strings.Contains(s.log.String(), `msg="a remote cluster was removed" cluster=`+cluster)
}

// until waits until the problems of Secrets are as wanted: each contains the text before " ... ", and ends with the text after it.
func (s *sources) until(want ...string) {
	s.Helper()
	s.await(fmt.Sprintf("the problems %q", want), func() bool {
		return len(s.present) == len(want) && !slices.ContainsFunc(want, func(w string) bool {
			begin, end, _ := strings.Cut(w, " ... ")
			return !slices.ContainsFunc(s.present, func(p string) bool { return strings.Contains(p, begin) && strings.HasSuffix(p, end) })
		})
	})
}

// await waits until a condition holds. It is evaluated while the state is locked.
func (s *sources) await(what string, ok func() bool) {
	s.Helper()
	limit := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		found, present := ok(), strings.Join(s.present, "\n")
		s.mu.Unlock()
		if strings.Contains(present, token) {
			s.Fatalf("a credential is in a problem:\n%s", present)
		}
		if found {
			return
		}
		select {
		case <-s.changed:
		case <-limit:
			s.Fatalf("want %s; the problems are\n%s", what, present)
		}
	}
}

// secret returns a Secret that describes clusters, all by the same kubeconfig.
func (s *sources) secret(name string, created int64, kubeconfig string, clusters ...string) kube.Secret {
	all := map[string]kube.Kubeconfig{}
	for _, id := range clusters {
		all[id] = kube.Kubeconfig(kubeconfig)
	}
	return kube.Secret{Namespace: "istio-system", Name: name, Created: created, Clusters: all}
}

func (s *sources) good() string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: %s}}]}`, s.server, token)
}

func (s *sources) set(secrets ...kube.Secret) { s.Set(kube.Remote{Secrets: secrets}) }

// TestOneSecretPerCluster: of several Secrets the oldest describes a cluster, and continues to do so when an older one comes.
func TestOneSecretPerCluster(t *testing.T) {
	s := start(t, time.Hour)
	older, newer := s.secret("older", 1, s.good(), "west"), s.secret("newer", 2, s.good(), "west", "east")
	s.set(newer, older)
	s.until("Secret istio-system/newer ... remove the key from one of the two")
	s.set(newer)
	s.until()
	s.set(newer, older)
	s.until("Secret istio-system/older ... remove the key from one of the two")
	s.set()
	s.await("two clusters without objects", func() bool { return s.removed("east") && s.removed("west") })
	s.until()
}

// TestUnusableKubeconfigs: a kubeconfig that cannot be used is a problem of its Secret. A cluster that is read continues to be read.
func TestUnusableKubeconfigs(t *testing.T) {
	s := start(t, time.Hour)
	s.set(s.secret("a", 1, s.good(), "local"), s.secret("b", 1, "token: "+token, "north"), s.secret("c", 1, "", "south"),
		s.secret("d", 1, s.good(), "west"), s.secret("e", 1, strings.Replace(s.good(), "server:", "insecure-skip-tls-verify: true, server:", 1), "east"))
	own := "Secret istio-system/a ... remove the key, or give the remote cluster another ID; the cluster is not read"
	s.until(own, "Secret istio-system/b ... the cluster is not read", "Secret istio-system/c ... it is empty; write a kubeconfig as its value; the cluster is not read",
		"Secret istio-system/e ... set certificate-authority-data instead")
	s.set(s.secret("a", 1, s.good(), "local"), s.secret("d", 1, strings.Replace(s.good(), "token: ", "tokenFile: /etc/passwd, token: ", 1), "west"))
	s.until(own, "Secret istio-system/d ... the cluster is read with the last good kubeconfig")
	s.await("one cluster without objects", func() bool { return s.removed("east") && !s.removed("west") })
	states := map[string]string{}
	for _, one := range s.Statuses() {
		states[one.ID] = one.State + " " + one.Secret
		if text := fmt.Sprint(one); strings.Contains(text, token) || one.ID != "west" && len(one.Problems) != 1 {
			t.Errorf("the cluster is described as %s", text)
		}
	}
	want := map[string]string{"local": source.ClusterRefused + " istio-system/a", "west": source.ClusterSyncing + " istio-system/d"}
	if !maps.Equal(states, want) {
		t.Errorf("the clusters are %v, want %v", states, want)
	}
}

// TestStates: a cluster is synced when its source has listed it, and stale while something cannot be read.
func TestStates(t *testing.T) {
	c := remote.New(remote.Options{})
	remote.Show(c, source.Cluster{ID: "west"}, source.Cluster{ID: "east", State: source.ClusterRefused})
	unreadable := api.Problem{Code: "cluster-unreadable", Reason: "the API server does not answer"}
	for i, step := range []struct {
		batch source.Batch
		want  string
	}{
		{source.Batch{}, source.ClusterSyncing},
		{source.Batch{Problems: []source.ProblemEvent{{Problem: unreadable}}}, source.ClusterSyncing + " " + unreadable.Reason},
		{source.Batch{Synced: true}, source.ClusterStale + " " + unreadable.Reason},
		{source.Batch{Problems: []source.ProblemEvent{{Problem: api.Problem{Code: "other", Reason: "x"}}}}, source.ClusterStale + " " + unreadable.Reason},
		{source.Batch{Problems: []source.ProblemEvent{{Problem: unreadable, Gone: true}}}, source.ClusterSynced},
	} {
		remote.Hear(c, "west", step.batch)
		got := c.Statuses()
		if text := strings.TrimSpace(got[0].State + " " + strings.Join(got[0].Problems, " ")); text != step.want || got[1].State != source.ClusterRefused {
			t.Errorf("step %d: %+v, want %s", i, got, step.want)
		}
	}
}

// TestSynced: the source has listed everything when there is no cluster, and otherwise when clusters that do not answer have had their
// time.
func TestSynced(t *testing.T) {
	none := start(t, time.Hour)
	none.set()
	none.await("that nothing is missing", func() bool { return none.synced })
	s := start(t, time.Millisecond)
	s.set(s.secret("a", 1, s.good(), "west"))
	s.await("that the cluster is waited for no longer", func() bool { return s.synced })
	s.await("that it is still tried", func() bool { return !s.removed("west") })
}
