package agent

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/platform"
	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// reloadEvery is how often the settings are read without a sign that they have changed.
const reloadEvery = time.Minute

// reloader reads the settings again when their files have changed, and makes the supervisor replace Envoy if they yield another bootstrap.
type reloader struct {
	proxy    *proxy
	settings *config.Settings // as read at the start
	place    platform.Place   // where the machine is, which does not change
	change   func(revision int)
	log      *slog.Logger
	asked    chan struct{} // a request for a hot restart, whether anything has changed or not
	patched  chan struct{} // another patch of the bootstrap is in force

	number  int // of the last revision
	present revision
	refused revision // the last one that Envoy's validation has refused
}

// newReloader returns a reloader that passes the numbers of new revisions to change.
func newReloader(p *proxy, s *config.Settings, place platform.Place, change func(revision int), log *slog.Logger) *reloader {
	return &reloader{
		proxy: p, settings: s, place: place, change: change, log: log, asked: make(chan struct{}, 1), patched: make(chan struct{}, 1),
		number: firstRevision,
	}
}

// ask requests a hot restart. Requests that arrive before the restart count as one.
func (r *reloader) ask() { signal(r.asked) }

// repatch reports that another patch of the bootstrap is in force.
func (r *reloader) repatch() { signal(r.patched) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run watches the files until ctx is cancelled. A signal from reload makes it read them at once.
func (r *reloader) run(ctx context.Context, reload <-chan os.Signal) error {
	files := filewatch.Watcher{Log: r.log}
	defer files.Close()
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	select {
	case <-r.proxy.begun:
		r.present = r.proxy.first()
	case <-ctx.Done():
		return nil
	}
	for {
		files.Follow(append(r.settings.Files(), slices.Sorted(maps.Keys(r.present.files))...))
		forced := false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-reload:
			r.log.Info("received a signal to read the settings again")
		case <-r.asked:
			forced = true
		case <-r.patched:
			r.log.Info("what EnvoyFilters add to the bootstrap has changed")
		case <-files.Changed():
			files.Settle(ctx)
		case err := <-files.Failed():
			r.log.Debug("changes of settings may have been missed; reading them again", "error", err)
		}
		if ctx.Err() == nil {
			r.read(ctx, forced)
		}
	}
}

// read reads the settings, and passes on the resulting revision if it differs, or if forced.
func (r *reloader) read(ctx context.Context, forced bool) {
	next, warnings, err := r.load()
	switch {
	case err != nil:
		r.log.Error("the settings have changed and are wrong; Envoy continues as it is", "error", err)
		return
	case !forced && next.equal(r.present):
		return
	case !forced && next.equal(r.refused):
		return // that was logged
	}
	for _, w := range warnings {
		r.log.Warn("settings", "remark", w)
	}
	if err := r.proxy.validate(ctx, next); err != nil {
		if ctx.Err() != nil {
			return
		}
		r.refused = next
		r.log.Error("the settings have changed, and Envoy refuses the bootstrap that follows from them; Envoy continues as it is", "error", err)
		return
	}
	r.number++
	r.present, r.refused = next, revision{}
	r.log.Info("the bootstrap of Envoy has changed, or a hot restart was asked for", "revision", r.number, "asked", forced)
	r.proxy.add(r.number, next)
	r.change(r.number)
}

func (r *reloader) load() (revision, []string, error) {
	s, err := r.settings.Reload()
	if err != nil {
		return revision{}, nil, err
	}
	c, err := Boot(s, Machine{Memory: memoryLimit("/"), Place: r.place})
	if err != nil {
		return revision{}, nil, err
	}
	next, err := r.proxy.revision(s, c)
	return next, s.Warnings(), err
}

// equal reports whether two revisions give Envoy the same input.
func (r revision) equal(other revision) bool {
	return r.text == other.text && r.options == other.options && slices.Equal(r.env, other.env) && maps.Equal(r.files, other.files)
}

// validate lets Envoy check a revision without running it. A process that fails while it takes over costs the present one its admin
// interface, so faults are looked for beforehand.
func (p *proxy) validate(ctx context.Context, r revision) error {
	o := r.options
	o.Text = r.text
	return envoy.Validate(ctx, o)
}

// namedFiles reads the files that documents of a bootstrap name, such as certificates. Envoy reads them only when it starts. A file that cannot be
// read has an empty content.
func namedFiles(documents ...[]byte) map[string]string {
	files := map[string]string{}
	for _, text := range documents {
		for _, d := range document.Split(text) {
			v, err := d.Parse()
			if err != nil {
				continue // Envoy reports the error
			}
			visit(v, func(path string) {
				text, err := disk.Read(path)
				if err != nil {
					text = nil
				}
				files[path] = string(text)
			})
		}
	}
	return files
}

// visit calls do for each file that a document names.
func visit(v *document.Value, do func(path string)) {
	if v == nil {
		return
	}
	for _, e := range v.Items {
		visit(e, do)
	}
	for _, m := range v.Members {
		if m.Key == "filename" && m.Value.Text() != "" {
			do(m.Value.Text())
		}
		visit(m.Value, do)
	}
}
