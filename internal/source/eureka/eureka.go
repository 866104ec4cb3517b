// Package eureka reads the applications of Eureka: all of them once, then the changes, which a hash of the server verifies.
//
// Invariants:
//   - Where the hash differs after a change, all applications are read again.
//   - What of an application cannot be read costs itself only.
//
// Goroutines: none but the caller's.
package eureka

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"time"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// patience is how long an answer may take.
const patience = 10 * time.Second

// reader reads one Eureka.
type reader struct {
	entry  registries.Entry
	client *registries.Client
}

// New returns a reader of a Eureka. It is a registries.Factory.
func New(e registries.Entry, a registries.Access, _ *slog.Logger) (registries.Reader, error) {
	header := http.Header{"Accept": {"application/json"}}
	if user := a.Auth[registries.EurekaUsername]; user != "" {
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+a.Auth[registries.EurekaPassword])))
	}
	return &reader{entry: e, client: registries.NewClient(e, a, header, 2)}, nil
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	defer r.client.Close()
	pause := registries.NewBackoff()
	var known *applications
	for {
		touched, next, err := r.read(ctx, known)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if registries.IsRefusal(err) {
				to.Refused(err)
			} else {
				to.Lost(err)
			}
			known = nil
			if !pause.Wait(ctx) {
				return
			}
			continue
		case known == nil:
			to.List(next.services(r.entry, nil), true)
			pause.Reset()
		case len(touched) > 0:
			to.Change(next.services(r.entry, touched))
		}
		known = next
		if !registries.Pause(ctx, r.entry.Refresh) {
			return
		}
	}
}

// read reads the changes since the last reading, or all. touched are the applications that changed.
func (r *reader) read(ctx context.Context, known *applications) (touched map[string]bool, next *applications, err error) {
	if known != nil {
		a, err := r.client.Get(ctx, patience, "/eureka/apps/delta", nil, nil)
		if err != nil {
			return nil, nil, err
		}
		if next, touched, ok := known.with(a.Body); ok {
			return touched, next, nil
		}
	}
	a, err := r.client.Get(ctx, patience, "/eureka/apps/", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if next, err = decode(a.Body); err != nil {
		return nil, nil, err
	}
	return next.differences(known), next, nil
}
