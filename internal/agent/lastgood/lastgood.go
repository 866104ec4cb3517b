// Package lastgood keeps the configuration that Envoy accepted last, in memory and in a file, so that Envoy and the agent can be started
// again while the control plane cannot be reached.
//
// Invariants: The store has what Envoy has acknowledged, and nothing else: no secrets, and nothing that Envoy has refused. The file is
// written whole or not at all, only its owner can read it, and one that is damaged, of another proxy, of another format or too large is
// not used. A file that cannot be written costs nothing but the file.
//
// Goroutines: Run, which writes the file. All methods may be called from several goroutines.
package lastgood

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// settle is how long the configuration must be left alone before the file is written, unless it never is.
	settle = time.Second
	// pause is the shortest time between two writes. A configuration that changes all the time is stored at least this often, too.
	pause = 10 * time.Second
	// maxSize is the size of the largest file, in bytes. It is some ten times what a proxy gets in a mesh of 10,000 services.
	maxSize = 256 << 20
)

// Store is what Envoy has accepted. The zero Store is not usable; see Open.
type Store struct {
	path, node string
	log        *slog.Logger
	// turned has a signal after a change.
	turned chan struct{}

	mu    sync.Mutex
	types map[string]map[string]*discoveryv3.Resource // by type URL and name; resources are immutable
	state State
}

// State describes a store.
type State struct {
	// Resources and Bytes are how much is kept.
	Resources, Bytes int
	// Saved is when the file was written that holds what is kept now, or a state up to pause before it; zero if there is none.
	Saved time.Time
	// Problem says why the file cannot be written, or was not used; empty if nothing is wrong.
	Problem string
}

// Open returns the store of a proxy, with the content of its file. node is the id of the proxy.
func Open(path, node string, log *slog.Logger) *Store {
	s := &Store{path: path, node: node, log: log, turned: make(chan struct{}, 1), types: map[string]map[string]*discoveryv3.Resource{}}
	saved, list, err := read(path, node, maxSize)
	if err != nil {
		s.state.Problem = err.Error()
		log.Warn("the last known good configuration is not used; it is written anew", "error", err)
		return s
	}
	for _, of := range list {
		s.set(of.GetTypeUrl(), of.GetResources())
	}
	s.state.Saved = saved
	if s.state.Resources > 0 {
		log.Info("the last known good configuration is at hand", "file", path, "of", saved.Format(time.RFC3339), "resources", s.state.Resources)
	}
	return s
}

// State returns how much there is.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Empty reports whether nothing is kept.
func (s *Store) Empty() bool { return s.State().Resources == 0 }

// Accept takes in what Envoy has acknowledged of a type: resources that are new or changed, and names of those that are gone.
func (s *Store) Accept(typeURL string, resources []*discoveryv3.Resource, removed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(typeURL, resources)
	for _, name := range removed {
		s.remove(typeURL, name)
	}
	s.touch()
}

// Keep removes all resources of a type but those with some names.
func (s *Store) Keep(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Resources
	stay := make(map[string]bool, len(names))
	for _, name := range names {
		stay[name] = true
	}
	for name := range s.types[typeURL] {
		if !stay[name] {
			s.remove(typeURL, name)
		}
	}
	if s.state.Resources != before {
		s.touch()
	}
}

// Forget removes resources.
func (s *Store) Forget(typeURL string, names ...string) { s.Accept(typeURL, nil, names) }

// All returns the resources of a type in the order of their names.
func (s *Store) All(typeURL string) []*discoveryv3.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inOrder(s.types[typeURL])
}

// Named returns the resources of a type with some names, and the names of which there is none.
func (s *Store) Named(typeURL string, names []string) (list []*discoveryv3.Resource, missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if r := s.types[typeURL][name]; r != nil {
			list = append(list, r)
		} else {
			missing = append(missing, name)
		}
	}
	return list, missing
}

// set, remove and touch are called with the lock held, or by Open.
func (s *Store) set(typeURL string, resources []*discoveryv3.Resource) {
	all := s.types[typeURL]
	if all == nil {
		all = map[string]*discoveryv3.Resource{}
		s.types[typeURL] = all
	}
	for _, r := range resources {
		s.remove(typeURL, r.GetName())
		all[r.GetName()] = r
		s.state.Resources++
		s.state.Bytes += proto.Size(r)
	}
}

func (s *Store) remove(typeURL, name string) {
	if r := s.types[typeURL][name]; r != nil {
		delete(s.types[typeURL], name)
		s.state.Resources--
		s.state.Bytes -= proto.Size(r)
	}
}

func (s *Store) touch() {
	select {
	case s.turned <- struct{}{}:
	default:
	}
}

func inOrder(all map[string]*discoveryv3.Resource) []*discoveryv3.Resource {
	return slices.SortedFunc(maps.Values(all), func(a, b *discoveryv3.Resource) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// Run writes the file after changes until ctx is cancelled, and then once more if something has changed.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			select {
			case <-s.turned:
				s.write()
			default:
			}
			return nil
		case <-s.turned:
		}
		s.wait(ctx, settle)
		s.write()
		s.wait(ctx, pause)
	}
}

// wait waits for some time, or until ctx is cancelled.
func (s *Store) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// write writes the file.
func (s *Store) write() {
	s.mu.Lock()
	list := make([]*discoveryv3.DeltaDiscoveryResponse, 0, len(s.types))
	for _, typeURL := range slices.Sorted(maps.Keys(s.types)) {
		if all := s.types[typeURL]; len(all) > 0 {
			list = append(list, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: inOrder(all)})
		}
	}
	s.mu.Unlock()
	now := time.Now()
	err := write(s.path, s.node, now, maxSize, list)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.state.Saved, s.state.Problem = now, ""
	case s.state.Problem != err.Error():
		s.state.Problem = err.Error()
		s.log.Warn("the last known good configuration cannot be stored; without the control plane, Envoy cannot be started again after the agent", "error", err)
	}
}
