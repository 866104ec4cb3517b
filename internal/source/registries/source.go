package registries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// Name is the name of the source.
const Name = "registries"

// poll is how often the files are read without an event of the watch. Some changes cause no event.
const poll = 10 * time.Second

// Options are the settings of the source.
type Options struct {
	// Path is the registries file; empty for none.
	Path string
	// Flags are registries of the command line, which go before the registries of the file.
	Flags []Entry
	// Domain is the suffix of hosts of Kubernetes.
	Domain string
	// Factories makes readers, by type.
	Factories map[string]Factory
	// WaitMesh is true if the mesh configuration comes from another source. The source has not listed everything before UseMesh was called.
	WaitMesh bool
	// State is the folder in which the access policies of MCP servers are kept for the next run; empty for none. IgnoreRefused is true if a refused
	// policy without a good version has no effect.
	State         statefile.Dir
	IgnoreRefused bool
	Log           *slog.Logger
}

// Source is the source of services in registries.
type Source struct {
	o Options

	// mu guards the rest. It is held while a batch is passed on, so that batches leave in the order of their changes.
	mu         sync.Mutex
	sink       source.Sink
	rooms      []*room
	readers    map[string]*reading
	file       string // content of the file in force
	broken     []api.Problem
	migrations map[string]*registry.Migration
	synced     bool
	closed     bool
	running    sync.WaitGroup

	mesh      *meshconfig.MeshConfig // of the last UseMesh
	knowsMesh bool
	heard     chan struct{} // has a token after UseMesh
	keeps     chan struct{} // has a token after an access policy has changed
	sources   []api.Problem // of configSources
}

// reading is a running reader.
type reading struct {
	stop    context.CancelFunc
	ended   chan struct{}
	content string // of the files with secrets
}

// New reads the file once. An error names its mistake.
func New(o Options) (*Source, error) {
	s := &Source{
		o: o, readers: map[string]*reading{}, migrations: map[string]*registry.Migration{}, knowsMesh: !o.WaitMesh,
		heard: make(chan struct{}, 1), keeps: make(chan struct{}, 1),
	}
	for i := range o.Flags {
		if err := errors.Join(s.o.Flags[i].complete()...); err != nil {
			return nil, err
		}
	}
	if _, _, err := s.load(); err != nil {
		return nil, fmt.Errorf("--registriesConfig: %s: %w", o.Path, err)
	}
	return s, nil
}

// Types returns the types of the registries that exist at the start.
func (s *Source) Types() (types []string) {
	f, _, _ := s.load() // New has checked it
	for _, e := range f.Registries {
		types = append(types, e.Type)
	}
	return types
}

// load reads the file and adds the registries of the command line.
func (s *Source) load() (f *File, content string, err error) {
	f = &File{}
	if s.o.Path != "" {
		b, err := filewatch.Read(s.o.Path)
		if err != nil {
			return nil, "", err
		}
		content = string(b)
		if f, err = Decode(b); err != nil {
			return nil, content, err
		}
	}
	for _, e := range f.Registries {
		if slices.ContainsFunc(s.o.Flags, func(o Entry) bool { return o.Name == e.Name }) {
			return nil, content, fmt.Errorf("the registry %q is the one of --consulserverURL; remove the flag, or give the entry another name", e.Name)
		}
	}
	f.Registries = slices.Concat(s.o.Flags, f.Registries)
	return f, content, nil
}

// UseMesh sets the mesh configuration, whose configSources are servers of configuration. It returns at once.
func (s *Source) UseMesh(m *meshconfig.MeshConfig) {
	s.mu.Lock()
	same := s.knowsMesh && slices.EqualFunc(m.GetConfigSources(), s.mesh.GetConfigSources(), func(a, b *meshconfig.ConfigSource) bool { return proto.Equal(a, b) })
	s.mesh = m
	s.mu.Unlock()
	if !same {
		signal(s.heard)
	}
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Name implements source.Source.
func (s *Source) Name() string { return Name }

// Run implements source.Source.
func (s *Source) Run(ctx context.Context, sink source.Sink) error {
	f, content, err := s.load()
	if err != nil {
		return fmt.Errorf("the registries file %s: %w", s.o.Path, err)
	}
	s.mu.Lock()
	s.sink = sink
	s.mu.Unlock()
	s.apply(ctx, f, content, true)
	files := filewatch.Watcher{Log: s.o.Log}
	defer files.Close()
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		files.Follow(s.paths())
		timer.Reset(poll)
		select {
		case <-ctx.Done():
			s.running.Wait()
			s.save()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.closed = true // timers that fire now have no effect
			return nil
		case <-s.keeps:
			s.save()
			continue
		case <-s.heard:
			s.apply(ctx, f, content, false)
			continue
		case <-timer.C:
		case <-files.Changed():
			files.Settle(ctx)
		case <-files.Failed(): //nolint:errcheck // the files are read again after any error
		}
		f, content = s.reread(ctx, f, content)
	}
}

// save keeps the access policies that have changed.
func (s *Source) save() {
	s.mu.Lock()
	rooms := slices.Clone(s.rooms)
	s.mu.Unlock()
	for _, r := range rooms {
		if r.objects != nil {
			r.objects.save(s.o.Log)
		}
	}
}

// paths are the files that are watched.
func (s *Source) paths() (paths []string) {
	if s.o.Path != "" {
		paths = append(paths, s.o.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rooms {
		paths = append(paths, r.entry.files()...)
	}
	return paths
}

// reread reads all files again and applies their changes. It returns the file in force, and its content.
func (s *Source) reread(ctx context.Context, was *File, wasContent string) (f *File, content string) {
	f, content, err := s.load()
	switch {
	case err != nil:
		s.breakFile(err)
		return was, wasContent
	case content != s.inForce() || s.isBroken():
		s.apply(ctx, f, content, true)
	default:
		s.mu.Lock()
		rooms := slices.Clone(s.rooms)
		s.mu.Unlock()
		for _, r := range rooms {
			if a, _ := r.entry.access(); a.content != s.readers[r.entry.Name].content {
				s.start(ctx, r)
			}
		}
	}
	return f, content
}

func (s *Source) inForce() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

func (s *Source) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) > 0
}

// breakFile reports that the file cannot be used. The last good one stays in force.
func (s *Source) breakFile(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := []api.Problem{{
		Severity: api.Error, Code: "registry-file", Position: api.Position{File: s.o.Path},
		Reason: fmt.Sprintf("the registries file cannot be used, so that its last good version stays in force: %v", err),
	}}
	events := source.ProblemEvents(s.broken, is)
	s.broken = is
	if len(events) > 0 {
		s.send(nil, events)
	}
}

// apply puts a file in force. Only registries that it changes are touched. mends is true if the file has just been read. It belongs to the goroutine of
// Run.
func (s *Source) apply(ctx context.Context, f *File, content string, mends bool) {
	s.mu.Lock()
	var events []source.Event
	entries, problems := s.entries(f)
	if mends {
		problems = append(problems, source.ProblemEvents(s.broken, nil)...)
		s.file, s.broken = content, nil
	}
	was := map[string]*room{}
	for _, r := range s.rooms {
		was[r.entry.Name] = r
	}
	var restart []*room
	s.rooms = nil
	for i, e := range entries {
		r := was[e.Name]
		delete(was, e.Name)
		if r != nil && r.entry.Type != e.Type {
			gone, resolved := s.withdraw(r)
			events, problems = append(events, gone...), append(problems, resolved...)
			r.generation++
			r = nil
		}
		if r == nil {
			r = s.newRoom(e, i)
			restart = append(restart, r)
			s.rooms = append(s.rooms, r)
			continue
		}
		s.rooms = append(s.rooms, r)
		same := r.entry.sameReader(&e)
		gone, resolved := s.redefine(r, e, i)
		events, problems = append(events, gone...), append(problems, resolved...)
		if !same {
			r.trusted = true
			restart = append(restart, r)
		}
	}
	var stopped []*reading
	for name, r := range was {
		gone, resolved := s.withdraw(r)
		events, problems = append(events, gone...), append(problems, resolved...)
		r.generation++
		stopped = append(stopped, s.readers[name])
		delete(s.readers, name)
	}
	events = append(events, s.migrate(f)...)
	slices.SortStableFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	s.send(events, problems)
	s.mu.Unlock()
	for _, r := range stopped {
		r.stop()
	}
	for _, r := range restart {
		s.start(ctx, r)
	}
}

// entries returns the entries of the command line, of the mesh configuration and of the file. The lock is held.
func (s *Source) entries(f *File) ([]Entry, []source.ProblemEvent) {
	s.knowsMesh = s.knowsMesh || s.mesh != nil
	mesh, unusable := fromMesh(s.mesh, func(name string) bool {
		return slices.ContainsFunc(f.Registries, func(e Entry) bool { return e.Name == name })
	})
	n := len(s.o.Flags)
	problems := source.ProblemEvents(s.sources, unusable)
	s.sources = unusable
	return slices.Concat(f.Registries[:n], mesh, f.Registries[n:]), problems
}

// newRoom returns the room of a new entry. The access policies that an earlier run has kept are in force until the server is read. The lock is held.
func (s *Source) newRoom(e Entry, order int) *room {
	r := newRoom(e, order)
	if e.Type != MCP {
		return r
	}
	var folder *kept.Folder
	if s.o.State != "" {
		folder = &kept.Folder{Dir: s.o.State, Of: objectSource(e.Name)}
	}
	r.objects = newObjects(e.Name, folder, s.o.IgnoreRefused)
	s.sendObjects(r, r.objects.recall())
	return r
}

// withdraw removes all that a registry has passed on. The lock is held.
func (s *Source) withdraw(r *room) ([]source.Event, []source.ProblemEvent) {
	if r.objects != nil {
		s.sendObjects(r, r.objects.withdraw())
		r.objects.save(s.o.Log)
	}
	return r.withdraw()
}

// sendObjects passes on changes of the objects of a server of configuration. The lock is held.
func (s *Source) sendObjects(r *room, events []source.Event) {
	if len(events) == 0 {
		return
	}
	if slices.ContainsFunc(events, func(e source.Event) bool { return e.Key.GuardsAccess() }) {
		signal(s.keeps)
	}
	slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	s.sink.Apply(source.Batch{Source: objectSource(r.entry.Name), Events: events, Synced: true})
}

// redefine gives a room another version of its entry. Its services are converted again at once.
func (s *Source) redefine(r *room, e Entry, order int) (events []source.Event, problems []source.ProblemEvent) {
	moved := e.Namespace != r.entry.Namespace
	if moved {
		events, problems = r.withdraw()
		r.sent, r.reported = map[api.Key]*registry.Service{}, map[string][]api.Problem{}
	}
	r.entry, r.order = e, order
	e2, p2 := r.convert(slices.Collect(maps.Keys(mergeNames(r.said, r.was))), s.o.Domain)
	return append(events, e2...), append(append(problems, p2...), r.reportState()...)
}

func mergeNames(maps ...map[string]*Service) map[string]bool {
	all := map[string]bool{}
	for _, m := range maps {
		for name := range m {
			all[name] = true
		}
	}
	return all
}

// migrate returns the events for the migrations of a file.
func (s *Source) migrate(f *File) (events []source.Event) {
	is := map[string]*registry.Migration{}
	for _, m := range f.Migrations {
		is[m.Host] = &registry.Migration{Weights: m.Weights}
		if was := s.migrations[m.Host]; was == nil || !was.Same(is[m.Host]) {
			events = append(events, source.Event{Key: registry.MigrationKey(m.Host), Value: is[m.Host], Added: was == nil})
		}
	}
	for host := range s.migrations {
		if is[host] == nil {
			events = append(events, source.Event{Key: registry.MigrationKey(host)})
		}
	}
	s.migrations = is
	return events
}

// send passes on a batch. The lock is held.
func (s *Source) send(events []source.Event, problems []source.ProblemEvent) {
	was := s.synced
	s.synced = s.synced || s.knowsMesh && !slices.ContainsFunc(s.rooms, func(r *room) bool { return !r.settled() })
	if len(events) == 0 && len(problems) == 0 && was == s.synced {
		return
	}
	s.sink.Apply(source.Batch{Source: Name, Events: events, Problems: problems, Synced: s.synced})
}

// start starts the reader of a room in the place of the one that is running. It belongs to the goroutine of Run.
func (s *Source) start(ctx context.Context, r *room) {
	if old := s.readers[r.entry.Name]; old != nil {
		old.stop()
		<-old.ended
	}
	s.mu.Lock()
	r.generation++
	to := &listener{s, r, r.generation}
	if !r.listed && !r.waited {
		time.AfterFunc(r.entry.ReadyTimeout, to.waited)
	}
	s.mu.Unlock()
	a, err := r.entry.access()
	ctx, stop := context.WithCancel(ctx)
	one := &reading{stop: stop, ended: make(chan struct{}), content: a.content}
	s.readers[r.entry.Name] = one
	log := s.o.Log.With("registry", r.entry.Name)
	var reader Reader
	if err == nil {
		reader, err = s.reader(r.entry, a, log)
	}
	if err != nil {
		to.Refused(err)
		close(one.ended)
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer close(one.ended)
		reader.Run(ctx, to)
	}()
}

func (s *Source) reader(e Entry, a Access, log *slog.Logger) (Reader, error) {
	if e.Type == Memory {
		return written{e}, nil
	}
	factory := s.o.Factories[e.Type]
	if factory == nil {
		return nil, fmt.Errorf("registries of type %s cannot be read", e.Type)
	}
	return factory(e, a, log)
}
