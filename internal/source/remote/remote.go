// Package remote starts and stops the sources of remote clusters, which Secrets in the cluster of the control plane describe: each
// data key is the ID of a cluster, and its value a kubeconfig.
//
// Invariants:
//   - There is at most one source per cluster. If several Secrets describe a cluster, the first one is used until it no
//     longer describes the cluster, and the others have a Problem.
//   - A kubeconfig that cannot be used changes nothing: a cluster that is read already is read as before.
//   - A new kubeconfig for a cluster that is read replaces the connection to it. Its objects stay in force until they are listed again.
//   - A cluster that no Secret describes any more is removed with all its objects in one batch.
//   - Credentials are in no Problem and no message. Problems are about the Secret.
//
// Goroutines: Run works in the caller's goroutine, which owns all state. It starts one goroutine per cluster, which runs the source
// of that cluster, and waits for it.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

// Options of Clusters.
type Options struct {
	// Local is the ID of the cluster of the control plane. A Secret must not describe it.
	Local string
	// Source are the options of the source of a remote cluster, without Config, Cluster and Mesh.
	Source kube.Options
	// Timeout is how long remote clusters that do not answer delay Synced (default 30 seconds). Without a limit a cluster that is
	// away would keep the control plane from starting.
	Timeout time.Duration
	// Log receives messages for operators (default: none).
	Log *slog.Logger
}

const defaultTimeout = 30 * time.Second

// Clusters is the source of all remote clusters. It reports the problems of Secrets itself. The objects and problems of a cluster are
// passed on by a source of their own, whose name is "kubernetes/" and the ID of the cluster.
type Clusters struct {
	o Options

	mu    sync.Mutex
	given *kube.Remote  // the last argument of Set that Run has not taken in yet
	wake  chan struct{} // has a token after given was set, or after a cluster was listed
	// shown are the clusters as Secrets describe them, and heard is what their sources have passed on.
	shown []source.Cluster
	heard map[string]*heard
}

// New returns the source. It knows no cluster before the first call of Set.
func New(o Options) *Clusters {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Clusters{o: o, wake: make(chan struct{}, 1), heard: map[string]*heard{}}
}

// Name returns the name of the source.
func (*Clusters) Name() string { return "remote clusters" }

// Set sets the remote clusters of the source. It returns at once and may be called from any goroutine.
func (c *Clusters) Set(r kube.Remote) {
	c.mu.Lock()
	c.given = &r
	c.mu.Unlock()
	c.rouse()
}

func (c *Clusters) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// news returns the last argument of Set since the last call of news; nil if Set was not called.
func (c *Clusters) news() *kube.Remote {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := c.given
	c.given = nil
	return given
}

// Run passes batches to sink until ctx is cancelled, and then returns nil. The sources of the clusters pass their batches to the same
// sink, each from a goroutine of its own.
func (c *Clusters) Run(ctx context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{Clusters: c, ctx: ctx, sink: sink, clusters: map[string]*cluster{}}
	defer func() {
		cancel()
		for _, one := range r.clusters {
			<-one.done
		}
	}()
	limit := time.NewTimer(c.o.Timeout)
	limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			if given := c.news(); given != nil {
				if !r.given {
					limit.Reset(c.o.Timeout)
				}
				r.take(*given)
			}
		case <-limit.C:
			r.late = true
		}
		r.report()
	}
}

// cluster is a remote cluster that is read.
type cluster struct {
	id string
	// secret is the Secret that describes it, and kubeconfig the kubeconfig in use.
	secret     api.Key
	kubeconfig kube.Kubeconfig
	server     string
	source     *kube.Source
	done       chan struct{} // is closed when the source has ended
	listed     chan struct{} // is closed when the source has listed everything
}

// run is the state of running Clusters.
type run struct {
	*Clusters
	ctx      context.Context
	sink     source.Sink
	clusters map[string]*cluster
	// given is true after the first call of Set was taken in. late is true if clusters that are not listed by now delay nothing.
	given, late bool
	// problems are the problems that were passed on, found the problems to pass on.
	problems, found []api.Problem
	synced          bool
}

// described is a cluster as a Secret describes it.
type described struct {
	secret     kube.Secret
	kubeconfig kube.Kubeconfig
}

func keyOf(s kube.Secret) api.Key {
	return api.Key{Kind: "Secret", Namespace: s.Namespace, Name: s.Name}
}

// take takes in the remote clusters of the last call of Set.
func (r *run) take(given kube.Remote) {
	r.given, r.found = true, nil
	all := r.choose(given.Secrets)
	for _, id := range slices.Sorted(maps.Keys(r.clusters)) {
		if _, ok := all[id]; !ok {
			r.end(r.clusters[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		r.use(id, all[id], given)
		if one := r.clusters[id]; one != nil {
			one.source.UseMesh(given.Mesh)
		}
	}
	r.show(all)
}

// choose returns the clusters with the Secret that describes each: the one that does so already, or else the oldest.
func (r *run) choose(secrets []kube.Secret) map[string]described {
	secrets = slices.Clone(secrets)
	slices.SortStableFunc(secrets, func(a, b kube.Secret) int { return cmp.Compare(a.Created, b.Created) })
	all := map[string]described{}
	for _, s := range secrets {
		for id, kubeconfig := range s.Clusters {
			one := r.clusters[id]
			_, taken := all[id]
			if !taken || one != nil && one.secret == keyOf(s) {
				all[id] = described{s, kubeconfig}
			}
		}
	}
	for _, s := range secrets {
		for _, id := range slices.Sorted(maps.Keys(s.Clusters)) {
			if by := keyOf(all[id].secret); by != keyOf(s) {
				r.warn(s, id, "%s describes the cluster %s too, and is used; remove the key from one of the two", by, id)
			}
		}
	}
	return all
}

// use reads a cluster as a Secret describes it.
func (r *run) use(id string, by described, given kube.Remote) {
	if id == r.o.Local {
		r.refuse(by.secret, id, fmt.Errorf("%q is the ID of the cluster of the control plane itself (--clusterID): remove the key, or give the remote cluster another ID", id))
		return
	}
	config, warning, err := kube.ConnectRemote(by.kubeconfig)
	one := r.clusters[id]
	if err == nil && (one == nil || !bytes.Equal(one.kubeconfig, by.kubeconfig)) {
		err = r.connect(id, by, config, given)
	}
	if err != nil {
		r.refuse(by.secret, id, err)
		return
	}
	r.clusters[id].secret = keyOf(by.secret)
	if warning != "" {
		r.warn(by.secret, id, "%s", warning)
	}
}

// connect starts to read a cluster, or reconnects its source.
func (r *run) connect(id string, by described, config *rest.Config, given kube.Remote) error {
	if one := r.clusters[id]; one != nil {
		if err := one.source.Reconnect(config); err != nil {
			return fmt.Errorf("its credentials cannot be used: %w", err)
		}
		one.kubeconfig, one.server = by.kubeconfig, config.Host
		r.o.Log.Info("a remote cluster has another kubeconfig", "cluster", id, "secret", keyOf(by.secret).String(), "server", config.Host)
		return nil
	}
	o := r.o.Source
	o.Config, o.Cluster, o.Mesh = config, id, given.Mesh
	src, err := kube.New(o)
	if err != nil {
		return err
	}
	one := &cluster{
		id: id, secret: keyOf(by.secret), kubeconfig: by.kubeconfig, server: config.Host, source: src, done: make(chan struct{}), listed: make(chan struct{}),
	}
	r.clusters[id] = one
	go func() {
		defer close(one.done)
		// A source of Kubernetes returns no error: it reports Problems.
		_ = src.Run(r.ctx, &listing{Sink: r.sink, hear: func(b source.Batch) { r.hear(id, b) }, then: func() { close(one.listed); r.rouse() }})
	}()
	r.o.Log.Info("a remote cluster was added", "cluster", id, "secret", keyOf(by.secret).String(), "server", config.Host)
	return nil
}

// end removes a cluster with its objects.
func (r *run) end(one *cluster) {
	one.source.Remove()
	<-one.done
	delete(r.clusters, one.id)
	r.forget(one.id)
	r.o.Log.Info("a remote cluster was removed", "cluster", one.id, "secret", one.secret.String())
}

// refuse reports a kubeconfig that is not used.
func (r *run) refuse(s kube.Secret, id string, why error) {
	consequence := "the cluster is not read"
	if r.clusters[id] != nil {
		consequence = "the cluster is read with the last good kubeconfig"
	}
	r.add(s, id, api.Error, fmt.Sprintf("the kubeconfig of cluster %s is not used: %v; %s", id, why, consequence))
}

func (r *run) warn(s kube.Secret, id, format string, args ...any) {
	r.add(s, id, api.Warning, fmt.Sprintf(format, args...))
}

func (r *run) add(s kube.Secret, id string, severity api.Severity, reason string) {
	r.found = append(r.found, api.Problem{Object: keyOf(s), Severity: severity, Code: "cluster-secret-invalid", Field: fieldOf(id), Reason: reason})
}

// report passes on changes of the problems, and of whether everything is listed.
func (r *run) report() {
	events := source.ProblemEvents(r.problems, r.found)
	for _, e := range events {
		if !e.Gone {
			r.o.Log.Warn("a Secret of a remote cluster", "problem", e.Problem.String())
		}
	}
	synced := r.synced || r.given && r.complete()
	if len(events) == 0 && synced == r.synced {
		return
	}
	r.problems, r.synced = r.found, synced
	r.sink.Apply(source.Batch{Source: r.Name(), Problems: events, Synced: synced})
}

// complete reports whether all clusters are listed, or are waited for no longer.
func (r *run) complete() bool {
	for _, one := range r.clusters {
		select {
		case <-one.listed:
		default:
			if !r.late {
				return false
			}
		}
	}
	return true
}

// listing passes batches to hear, too, and calls then when its source has listed everything.
type listing struct {
	source.Sink
	hear func(source.Batch)
	then func()
	done bool
}

// Apply implements source.Sink.
func (l *listing) Apply(b source.Batch) {
	l.hear(b)
	l.Sink.Apply(b)
	if b.Synced && !l.done {
		l.done = true
		l.then()
	}
}
