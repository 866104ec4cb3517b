// Package kube is the source for one Kubernetes cluster: its services, endpoint slices, pods, nodes and namespaces, and for the
// cluster of the control plane also Istio's configuration and the mesh configuration.
//
// Each kind is watched by a reflector of client-go. The reflector does not fill a cache of whole objects: each object is
// converted at once to the value that the control plane reads (package internal/api/kube, or an api.Object), and only that value is
// kept, in a table by namespace and name. A change of an object that does not change its value causes no event.
//
// Invariants:
//   - A batch contains the changes of one event of the API server, or the differences that one list, one change of the selected
//     namespaces or one change of the mesh configuration makes.
//   - A malformed object never stops a watch. Its last good version stays in force, and it has a Problem.
//   - The last good version of an access policy survives the process (Options.Policies). A refused policy without a known good version
//     denies all requests to its workloads. A kind of these policies that is defined and cannot be listed is never taken for empty: Synced
//     waits for it.
//   - Listed objects stay in force while the cluster cannot be reached. A list in which many objects are suddenly missing is believed
//     only when they are also missing in a second list, some seconds later.
//   - Of the Secrets and ConfigMaps that proxies ask for, only those are watched that WantSecrets names, each alone.
//   - Objects of namespaces that are not selected are kept in the tables but not passed on, so that selecting a namespace later
//     needs no list.
//
// Goroutines: Run works in the caller's goroutine. It starts one goroutine for each watched kind, Secret and ConfigMap, and one for
// each open watch, which notices when the watch has become silent. All of them end before Run returns. A mutex guards the tables, and
// batches are passed to the sink while it is held.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// Options of a source.
type Options struct {
	// Config is how to reach the API server; Connect makes one.
	Config *rest.Config
	// Cluster is the ID of the cluster. It is a part of the keys of services, slices, pods, nodes and namespaces.
	Cluster string
	// Namespace is the namespace of the control plane (default istio-system).
	Namespace string
	// Revision is the revision of the control plane (default "default").
	Revision string
	// Configuration is true if the objects of Istio's configuration are watched.
	Configuration bool
	// Policies, if not nil, receives the last good versions of access policies, to be written to the ConfigMaps that KeptMap names. The
	// ConfigMaps are read for policies whose present version is refused.
	Policies *kept.Book
	// IgnoreRefused is true if refused access policies without a known good version have no effect, instead of substitutes that deny.
	IgnoreRefused bool
	// MeshConfigMap and NetworksConfigMap are true if the mesh configuration, and the mesh networks, are read from the ConfigMap
	// "istio" in the namespace of the control plane, or "istio-<revision>" for another revision than the default one.
	MeshConfigMap, NetworksConfigMap bool
	// SharedMeshConfig is the name of a ConfigMap in the same namespace whose mesh configuration is merged under that one; empty
	// for none.
	SharedMeshConfig string
	// Remote, if not nil, is called with the remote clusters that Secrets in the namespace RemoteNamespace (default: Namespace) describe,
	// once they are listed and the mesh configuration is known, and then whenever one of these changes. It must return at once.
	Remote          func(Remote)
	RemoteNamespace string
	// Mesh is the mesh configuration in force if it is not read from the ConfigMap; nil means the defaults. UseMesh replaces it.
	Mesh *meshconfig.MeshConfig
	// QPS and Burst limit the requests to the API server per second (default 80 and 160).
	QPS   float32
	Burst int
	// Log receives messages for operators (default: none).
	Log *slog.Logger
}

// Limits of the requests to the API server.
const (
	defaultQPS   = 80
	defaultBurst = 160
)

// The defaults of Options.
const (
	defaultNamespace = "istio-system"
	defaultRevision  = "default"
)

// timing has the durations that tests shorten.
type timing struct {
	// silence is how long a watch may deliver nothing, not even a bookmark. The API server sends a bookmark about every minute.
	silence time.Duration
	// doubt is the time from a list in which many objects are missing to the next one.
	doubt time.Duration
	// excuse is how long a kind that may not be listed delays Synced. An installation applies the role of the control plane
	// at about the same time as the control plane itself, and in any order, so some time must pass; and a mesh must not stay
	// without a control plane because of one missing permission, so it must not be long.
	excuse time.Duration
	// startup is how long a kind must fail to be listed for this to be a problem. An API server that has just started refuses
	// requests until it has read the roles.
	startup time.Duration
	// firstPause and longestPause limit the pause after a failed attempt to list and watch.
	firstPause, longestPause time.Duration
	// settled is how long an attempt must have lasted for the next pause to be short again.
	settled time.Duration
}

func defaultTiming() timing {
	return timing{
		silence: 3 * time.Minute, doubt: 5 * time.Second, excuse: 30 * time.Second, startup: 3 * time.Second,
		firstPause: 250 * time.Millisecond, longestPause: 5 * time.Second, settled: 10 * time.Second,
	}
}

// Source watches one cluster.
type Source struct {
	o       Options
	clients *clients
	timing  timing

	mu   sync.Mutex
	mesh *meshconfig.MeshConfig // of UseMesh, or Options.Mesh
	wake chan struct{}          // has a token after mesh was replaced

	wantedSecrets []api.Key     // of WantSecrets
	wanted        chan struct{} // has a token after wantedSecrets was replaced

	replaced chan replacement // has the argument of the last Reconnect that Run has not applied yet
	removed  chan struct{}    // is closed by Remove
	remove   sync.Once
}

// replacement is another way to reach the API server.
type replacement struct {
	config  *rest.Config
	clients *clients
}

// New returns the source. It sends no request before Run.
func New(o Options) (*Source, error) {
	if o.Config == nil {
		return nil, errors.New("a Kubernetes source needs the address of an API server; call Connect")
	}
	if o.Cluster == "" {
		return nil, errors.New("a Kubernetes source needs the ID of the cluster; set --clusterID")
	}
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	o.Revision = cmp.Or(o.Revision, defaultRevision)
	o.RemoteNamespace = cmp.Or(o.RemoteNamespace, o.Namespace)
	o.QPS, o.Burst = cmp.Or(o.QPS, defaultQPS), cmp.Or(o.Burst, defaultBurst)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := newClients(o)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: the credentials for its API server cannot be used: %w", o.Cluster, err)
	}
	return &Source{
		o: o, clients: c, timing: defaultTiming(), mesh: o.Mesh, wake: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
		replaced: make(chan replacement, 1), removed: make(chan struct{}),
	}, nil
}

// Reconnect makes the source reach the API server in another way: with other credentials, at another address. Listed objects stay in
// force until the kinds have been listed again. The error says why the configuration cannot be used; then nothing changes. A source
// that reads configuration or settings cannot be reconnected. Only one goroutine may call it.
func (s *Source) Reconnect(config *rest.Config) error {
	if s.o.Configuration || s.o.MeshConfigMap || s.o.NetworksConfigMap || s.o.Remote != nil {
		return errors.New("only a source of services can be reconnected")
	}
	o := s.o
	o.Config = config
	c, err := newClients(o)
	if err != nil {
		return err
	}
	select {
	case <-s.replaced: // a newer one replaces it
	default:
	}
	s.replaced <- replacement{config, c}
	return nil
}

// Remove makes Run pass on one last batch, which removes everything that the source has passed on, and return.
func (s *Source) Remove() { s.remove.Do(func() { close(s.removed) }) }

// Name returns "kubernetes/" and the cluster.
func (s *Source) Name() string { return "kubernetes/" + s.o.Cluster }

// UseMesh sets the mesh configuration in force, whose discoverySelectors decide which namespaces are passed on. It
// has no effect on a source that reads the mesh configuration from the ConfigMap. It returns at once and may be called from any
// goroutine.
func (s *Source) UseMesh(m *meshconfig.MeshConfig) {
	s.mu.Lock()
	same := proto.Equal(m, s.mesh)
	s.mesh = m
	s.mu.Unlock()
	if same {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Source) givenMesh() *meshconfig.MeshConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mesh
}

// Run passes batches to sink until ctx is cancelled, and then returns nil. A cluster that cannot be reached is a Problem and not
// a Go error.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	r := newRun(ctx, s, sink)
	defer func() {
		cancel()
		r.close()
		s.clients.http.CloseIdleConnections()
	}()
	r.start()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			if !s.o.MeshConfigMap {
				r.update(func() { r.useMesh(s.givenMesh()) })
			}
		case <-s.wanted:
			r.update(r.followSecrets)
		case <-r.reconnected:
			r.checkVersion(ctx)
		case to := <-s.replaced:
			r.reconnect(to)
		case <-s.removed:
			r.removeAll()
			return nil
		}
	}
}

// Sharing returns a sink that passes each batch on, and calls UseMesh of the sources with the mesh configuration that a batch contains.
func Sharing(sink source.Sink, sources ...*Source) source.Sink { return sharing{sink, sources} }

type sharing struct {
	sink    source.Sink
	sources []*Source
}

// Apply implements source.Sink.
func (s sharing) Apply(b source.Batch) {
	if b.Mesh != nil {
		for _, to := range s.sources {
			to.UseMesh(b.Mesh)
		}
	}
	s.sink.Apply(b)
}
