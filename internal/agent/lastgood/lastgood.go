// Package lastgood keeps the configuration that Envoy accepted last, in memory and in files, so that Envoy and the agent can be started
// again while the control plane cannot be reached.
//
// A change of a type that decides about access (guarded) is on disk when Commit returns: it is appended to a second file, the changes behind
// the first, and flushed to the disk, so that it survives the end of the agent and of the machine. All other changes are written with the next
// copy of the whole configuration, which replaces the first file and empties the second one.
//
// Invariants: The store has the resources that Envoy has acknowledged, and no secrets. Resources that Envoy refuses later are set aside:
// only Refused returns them. The store knows whether it has all resources of a type (Complete); Envoy must not be served from a part. The file
// is replaced atomically and private. A damaged or too large file, or one of another proxy or format, is not used. Write errors are only reported.
//
// Goroutines: Run, which writes the file, and one while Commit writes, so that a disk that hangs delays no caller for long. All methods may be
// called from several goroutines.
package lastgood

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
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

// guarded reports whether Commit writes the changes of a type. Listeners contain access policies and the requirement of client certificates.
// Extension configurations can contain filters that deny requests. Clusters contain the TLS settings for servers.
func guarded(typeURL string) bool {
	switch strings.TrimPrefix(typeURL, "type.googleapis.com/envoy.config.") {
	case "listener.v3.Listener", "core.v3.TypedExtensionConfig", "cluster.v3.Cluster":
		return true
	}
	return false
}

// Store holds the configuration that Envoy has accepted. The zero Store is not usable; see Open.
type Store struct {
	path, node string
	log        *slog.Logger
	// turned has a signal after a change, and urgent after one that is written without a pause.
	turned, urgent chan struct{}
	journal        journal
	// committing is held by the goroutine of Commit.
	committing chan struct{}

	mu      sync.Mutex
	types   map[string]map[string]*discoveryv3.Resource // by type URL and name; resources are immutable
	refused map[string]map[string]*discoveryv3.Resource // resources that Envoy has refused since it accepted them
	// complete are the types whose resources are all in the store.
	complete map[string]bool
	state    State
	// changes are changes of guarded types that are in neither file, and number counts all of them. based is set if there is a file that
	// changes may follow.
	changes []*discoveryv3.DeltaDiscoveryResponse
	number  uint64
	based   bool
}

// State describes a store.
type State struct {
	// Resources and Bytes are the size of the store.
	Resources, Bytes int
	// Saved is when the file was written that holds the present state, or a state at most pause older; zero if there is none.
	Saved time.Time
	// Problem says why the file cannot be written, or was not used; empty if nothing is wrong.
	Problem string
}

// Open returns the store of a proxy, with the content of its files. node is the id of the proxy.
func Open(path, node string, log *slog.Logger) *Store {
	s := &Store{
		path: path, node: node, log: log, turned: make(chan struct{}, 1), urgent: make(chan struct{}, 1), committing: make(chan struct{}, 1),
		journal: journal{path: path + ".changes", node: node},
		types:   map[string]map[string]*discoveryv3.Resource{}, refused: map[string]map[string]*discoveryv3.Resource{}, complete: map[string]bool{},
		number: uint64(time.Now().UnixNano()), // larger than the numbers of changes that a file which is not used may have left
	}
	h, list, err := read(path, node, maxSize)
	if err != nil {
		s.state.Problem = err.Error()
		log.Warn("the last known good configuration is not used; it is written again", "error", err)
	}
	if h == nil {
		s.emptyJournal()
		return s
	}
	for _, of := range list {
		s.set(of.GetTypeUrl(), of.GetResources())
		s.complete[of.GetTypeUrl()] = h.Complete == nil // earlier versions of the format do not say
	}
	for _, typeURL := range h.Complete {
		s.complete[typeURL] = true
	}
	s.state.Saved, s.based = h.Saved, true
	s.follow(h)
	if s.state.Resources > 0 {
		log.Info("the last known good configuration is at hand", "file", path, "of", h.Saved.Format(time.RFC3339), "resources", s.state.Resources)
	}
	return s
}

// follow applies the changes that came after the file.
func (s *Store) follow(h *header) {
	if h.Changes == nil { // the file is of an earlier version, which knew of no changes
		s.based = false
		s.touch()
		s.emptyJournal()
		return
	}
	s.number = *h.Changes
	list, err := s.journal.read(maxSize)
	if err != nil {
		s.log.Warn("the changes behind the last known good configuration are not used", "error", err)
		s.emptyJournal()
	}
	for _, c := range list {
		if c.number <= *h.Changes {
			continue
		}
		s.set(c.response.GetTypeUrl(), c.response.GetResources())
		for _, name := range c.response.GetRemovedResources() {
			s.remove(c.response.GetTypeUrl(), name)
		}
		s.number = c.number
	}
}

// emptyJournal removes changes that belong to no file.
func (s *Store) emptyJournal() {
	if err := s.journal.empty(); err != nil {
		s.log.Warn("the changes behind the last known good configuration cannot be removed", "error", err)
	}
}

// State describes the store.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Empty reports whether the store has no resources.
func (s *Store) Empty() bool { return s.State().Resources == 0 }

// Finish notes that the store has all resources of some types. They stay complete: later responses are changes.
func (s *Store) Finish(typeURLs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, typeURL := range typeURLs {
		if s.complete[typeURL] {
			continue
		}
		s.complete[typeURL] = true
		s.touch()
		signal(s.urgent)
	}
}

// Complete reports whether the store has all resources of a type.
func (s *Store) Complete(typeURL string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete[typeURL]
}

// Accept records a response that Envoy has acknowledged: new or changed resources of a type, and names of removed ones.
func (s *Store) Accept(typeURL string, resources []*discoveryv3.Resource, removed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept(typeURL, resources, removed)
}

// Replace records a response that Envoy has acknowledged and that has all resources of a type.
func (s *Store) Replace(typeURL string, resources []*discoveryv3.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(resources))
	for _, r := range resources {
		names = append(names, r.GetName())
	}
	s.accept(typeURL, resources, s.others(typeURL, names))
}

// Keep removes all resources of a type except the named ones.
func (s *Store) Keep(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept(typeURL, nil, s.others(typeURL, names))
}

// Forget removes resources.
func (s *Store) Forget(typeURL string, names ...string) { s.Accept(typeURL, nil, names) }

// Refuse sets resources aside that Envoy refuses although it has accepted them once. They stay in the file.
func (s *Store) Refuse(typeURL string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if r := s.types[typeURL][name]; r != nil {
			s.remove(typeURL, name)
			of(s.refused, typeURL)[name] = r
		}
	}
}

// Restore returns resources to the store that were set aside.
func (s *Store) Restore(typeURL string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if r := s.refused[typeURL][name]; r != nil {
			s.set(typeURL, []*discoveryv3.Resource{r})
		}
	}
}

// Refused returns the resources of a type that were set aside, in the order of their names.
func (s *Store) Refused(typeURL string) []*discoveryv3.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inOrder(s.refused[typeURL])
}

// All returns the resources of a type in the order of their names.
func (s *Store) All(typeURL string) []*discoveryv3.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inOrder(s.types[typeURL])
}

// Named returns the resources of a type with the given names, and the names without a resource.
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

// The following are called with the lock held, or by Open.

// accept stores the changed resources, and notes them if the type is guarded.
func (s *Store) accept(typeURL string, resources []*discoveryv3.Resource, removed []string) {
	changed := slices.DeleteFunc(slices.Clone(resources), func(r *discoveryv3.Resource) bool { return same(r, s.types[typeURL][r.GetName()]) })
	removed = slices.DeleteFunc(slices.Clone(removed), func(name string) bool {
		return s.types[typeURL][name] == nil && s.refused[typeURL][name] == nil
	})
	if len(changed)+len(removed) == 0 {
		return
	}
	s.set(typeURL, changed)
	for _, name := range removed {
		s.remove(typeURL, name)
	}
	if guarded(typeURL) {
		s.number++
		if s.based && s.complete[typeURL] {
			s.changes = append(s.changes, &discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: typeURL, Resources: changed, RemovedResources: removed, Nonce: strconv.FormatUint(s.number, 10),
			})
		}
	}
	s.touch()
}

// same reports whether two resources are equal in every byte.
func same(a, b *discoveryv3.Resource) bool {
	return b != nil && a.GetVersion() == b.GetVersion() && a.GetResource().GetTypeUrl() == b.GetResource().GetTypeUrl() &&
		bytes.Equal(a.GetResource().GetValue(), b.GetResource().GetValue())
}

// others returns the names of all resources of a type except some.
func (s *Store) others(typeURL string, names []string) (list []string) {
	stay := make(map[string]bool, len(names))
	for _, name := range names {
		stay[name] = true
	}
	for _, all := range []map[string]*discoveryv3.Resource{s.types[typeURL], s.refused[typeURL]} {
		for name := range all {
			if !stay[name] {
				list = append(list, name)
			}
		}
	}
	return list
}

// of returns the map of a type, which it makes if there is none.
func of(types map[string]map[string]*discoveryv3.Resource, typeURL string) map[string]*discoveryv3.Resource {
	all := types[typeURL]
	if all == nil {
		all = map[string]*discoveryv3.Resource{}
		types[typeURL] = all
	}
	return all
}

func (s *Store) set(typeURL string, resources []*discoveryv3.Resource) {
	all := of(s.types, typeURL)
	for _, r := range resources {
		s.remove(typeURL, r.GetName())
		all[r.GetName()] = r
		s.state.Resources++
		s.state.Bytes += proto.Size(r)
	}
}

func (s *Store) remove(typeURL, name string) {
	delete(s.refused[typeURL], name)
	if r := s.types[typeURL][name]; r != nil {
		delete(s.types[typeURL], name)
		s.state.Resources--
		s.state.Bytes -= proto.Size(r)
	}
}

func (s *Store) touch() { signal(s.turned) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
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
		s.wait(ctx, settle, nil)
		s.write()
		s.wait(ctx, pause, s.urgent)
	}
}

// wait waits for some time, until there is a signal, or until ctx is cancelled.
func (s *Store) wait(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-signal:
	case <-ctx.Done():
	}
}

// content returns the header and the resources of a file.
func (s *Store) content(now time.Time) (header, []*discoveryv3.DeltaDiscoveryResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := header{Format: format, Node: s.node, Saved: now.UTC().Truncate(time.Second), Complete: []string{}, Changes: &[]uint64{s.number}[0]}
	var list []*discoveryv3.DeltaDiscoveryResponse
	for _, typeURL := range slices.Sorted(maps.Keys(s.types)) {
		all := s.types[typeURL]
		if aside := s.refused[typeURL]; len(aside) > 0 { // the next Envoy may accept them
			all = maps.Clone(all)
			maps.Copy(all, aside)
		}
		if len(all) > 0 {
			list = append(list, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: inOrder(all)})
		}
	}
	for _, typeURL := range slices.Sorted(maps.Keys(s.complete)) {
		if s.complete[typeURL] {
			h.Complete = append(h.Complete, typeURL)
		}
	}
	h.Types = len(list)
	return h, list
}

// write writes the file.
func (s *Store) write() {
	now := time.Now()
	h, list := s.content(now)
	err := write(s.path, h, maxSize, list)
	if err == nil {
		err = s.journal.emptyThrough(*h.Changes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.state.Saved, s.based = now, true
	}
	s.problem(err)
}

// problem notes whether a file could be written. It is called with the lock held.
func (s *Store) problem(err error) {
	switch {
	case err == nil:
		s.state.Problem = ""
	case s.state.Problem != err.Error():
		s.state.Problem = err.Error()
		s.log.Warn("the last known good configuration cannot be stored; without the control plane, an agent that is started again has an older one, or none", "error", err)
	}
}
