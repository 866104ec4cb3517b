package consul

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// The catalog lists the names of services. A name that comes or goes is a service that does.

// catalogEvery and catalogBurst bound the lists of names: the server makes one for each instance that comes or goes.
const (
	catalogEvery = 500 * time.Millisecond
	catalogBurst = 4
)

// names are the names of services, as the catalog lists them.
type names struct {
	list   []string
	index  uint64
	unsure bool
}

func (r *reader) names(a answer) (names, error) {
	list, self, err := decodeNames(a.body)
	list = slices.DeleteFunc(list, func(name string) bool { return !r.entry.Active(name) })
	// Without rights, a server answers with an empty catalog and no hint. The catalog of the default partition always has the servers.
	hidden := !self && r.entry.ConsulNamespace == "" && r.entry.ConsulPartition == ""
	return names{list, a.index, a.filtered || hidden}, err
}

// followCatalog follows the list of names.
func (f *following) followCatalog(ctx context.Context, is names) {
	limit := rate.NewLimiter(rate.Every(catalogEvery), catalogBurst)
	for !f.bulk || limit.Wait(ctx) == nil {
		a, err := f.follow(ctx, catalog, is.index, catalogWait)
		var next names
		if err == nil {
			next, err = f.names(a)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.fail(err)
			return
		case next.index == is.index && len(removed(is.list, next.list)) > 0:
			f.fail(errShown)
			return
		case next.unsure == is.unsure && slices.Equal(next.list, is.list) && (!f.sweeping || next.index == is.index):
			is = next
			continue
		}
		is = next
		select {
		case <-ctx.Done():
			return
		case f.catalog <- is:
		}
	}
}

// changeNames takes another list of names: services that are new are read, and others are gone.
func (f *following) changeNames(ctx context.Context, is names, some registries.Services) error {
	added := removed(is.list, f.known.list)
	if is.unsure || f.known.unsure {
		return errShown
	}
	for _, name := range removed(f.known.list, is.list) {
		if w := f.watched[name]; w != nil {
			w.stop()
			delete(f.watched, name)
		}
		f.forget(name)
		some[name] = nil
	}
	f.known = is
	if !f.bulk && len(is.list) > maxWatches || f.bulk && len(is.list) < fewWatches {
		f.to.Change(some)
		return errMode
	}
	if f.sweeping {
		f.wantSweep(is.list)
	}
	read, err := f.readAll(ctx, added, parallel)
	if err != nil {
		return err
	}
	for _, u := range read {
		if u.filtered {
			return errShown
		}
		some[u.name] = u.service
		f.pass(u)
		switch {
		case !f.bulk:
			f.watch(ctx, u)
		case len(read) <= hotWatches:
			f.heat(ctx, u)
		}
	}
	return nil
}

// removed returns the names that are in one sorted list and not in another.
func removed(was, is []string) (names []string) {
	for _, name := range was {
		if _, ok := slices.BinarySearch(is, name); !ok {
			names = append(names, name)
		}
	}
	return names
}
