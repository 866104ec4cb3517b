package registries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
)

// Snapshot is what registries have at one moment.
type Snapshot struct {
	Services map[api.Key]*registry.Service
	// Migrations are the hosts whose traffic registries share.
	Migrations map[string]bool
	// Problems are the parts of the registries that are not used.
	Problems []api.Problem
}

// ReadOnce reads registries of the file until each of them has been listed once, and no longer than ctx lasts. wanted selects the registries. An error
// names all registries that could not be read completely: a part of a registry must not pass for all of it.
func ReadOnce(ctx context.Context, o Options, wanted func(Entry) bool) (*Snapshot, error) {
	s := &Source{o: o}
	f, _, err := s.load()
	if err != nil {
		return nil, fmt.Errorf("the registries file %s: %w", o.Path, err)
	}
	out := &Snapshot{Services: map[api.Key]*registry.Service{}, Migrations: map[string]bool{}}
	for _, m := range f.Migrations {
		out.Migrations[m.Host] = true
	}
	var rooms []*room
	var there []string
	for i, e := range f.Registries {
		there = append(there, fmt.Sprintf("%s (%s)", e.Name, e.Type))
		if wanted(e) {
			rooms = append(rooms, newRoom(e, i))
		}
	}
	if len(rooms) == 0 {
		return nil, fmt.Errorf("the registries file %s has no such registry; it has %s", o.Path, strings.Join(append(there, "no others"), ", "))
	}
	errs := make([]error, len(rooms))
	problems := make([][]api.Problem, len(rooms))
	var running sync.WaitGroup
	for i, r := range rooms {
		running.Go(func() { problems[i], errs[i] = s.readOnce(ctx, r) })
	}
	running.Wait()
	for i, r := range rooms {
		maps.Copy(out.Services, r.sent)
		out.Problems = append(out.Problems, problems[i]...)
	}
	return out, errors.Join(errs...)
}

// readOnce fills a room with the first list of its registry.
func (s *Source) readOnce(ctx context.Context, r *room) ([]api.Problem, error) {
	failed := func(reason any, remedy string) error {
		return fmt.Errorf("the registry %s (%s) cannot be read: %v; %s", r.entry.Name, r.entry.Type, reason, remedy)
	}
	a, err := r.entry.access()
	if err != nil {
		return nil, failed(err, "correct the entry")
	}
	reader, err := s.reader(r.entry, a, s.o.Log)
	if err != nil {
		return nil, failed(err, "leave it out")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one := &firstList{end: cancel, problem: errors.New("no answer in time")}
	reader.Run(ctx, one)
	switch {
	case one.refused:
		return nil, failed(one.problem, "give its authFile the rights to read all services")
	case one.all == nil:
		return nil, failed(one.problem, "check its addresses, or give it more time with --timeout")
	case !one.sure:
		return nil, failed("the server does not show all services and instances to us", "give the token in its authFile the rights to read all services")
	}
	r.remarks = one.remarks
	names, _ := r.list(one.all, true)
	_, changes := r.convert(names, s.o.Domain)
	var problems []api.Problem
	for _, c := range append(changes, r.reportState()...) {
		problems = append(problems, c.Problem)
	}
	slices.SortFunc(problems, func(a, b api.Problem) int { return strings.Compare(a.String(), b.String()) })
	return problems, nil
}

// firstList is a listener that ends the reader with its first list.
type firstList struct {
	end     context.CancelFunc
	all     Services
	sure    bool
	refused bool
	problem error
	remarks []Remark
}

// List implements Listener.
func (l *firstList) List(all Services, sure bool) {
	if l.all == nil {
		l.all, l.sure, l.refused = all, sure, false
	}
	l.end()
}

// Change implements Listener. Changes come after the first list.
func (l *firstList) Change(Services) {}

// Lost implements Listener.
func (l *firstList) Lost(err error) { l.problem = err }

// Refused implements Listener.
func (l *firstList) Refused(err error) {
	if l.all == nil {
		l.problem, l.refused = err, true
	}
	l.end()
}

// Remark implements Listener.
func (l *firstList) Remark(remarks []Remark) { l.remarks = remarks }

// Objects implements Listener. Only servers of configuration have objects.
func (l *firstList) Objects(ObjectChange) {}

// Listed implements Listener.
func (l *firstList) Listed() {}
