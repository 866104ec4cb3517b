package relay

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
)

const (
	// settled is how long nothing must be missing until the configuration counts as complete. Envoy requests the routes and extensions of
	// listeners after it has acknowledged the listeners.
	settled = 200 * time.Millisecond
	// presumed is after which time an Envoy that listed some clusters or listeners, and received none, counts as having them all.
	presumed = 10 * time.Second
	// moreFollows ends the version of a response if the control plane has divided a change into several responses, and this is not the last one.
	moreFollows = "+"
)

// complete reports whether the store has everything that an Envoy needs. Otherwise the relay may not answer from it: an Envoy would be
// ready without a part of its listeners.
func (r *Relay) complete() bool { return complete(r.store) }

func complete(s *lastgood.Store) bool { return s.Complete(clusterURL) && s.Complete(listenerURL) }

// coverage finds out on one stream when Envoy has everything of the types that are kept, and notes that in the store: all parts of the
// clusters and listeners, and the requested routes and extensions. Later responses are changes, so it does so only once.
type coverage struct {
	store *lastgood.Store

	mu sync.Mutex
	// had is, for clusters and listeners, whether the last part was acknowledged, and said when Envoy listed some that it has.
	had  map[string]bool
	said map[string]time.Time
	// open are the names that Envoy has requested without an answer yet, by type. Of virtual hosts, they are the route configurations.
	open map[string]map[string]bool
	// hosts are the route configurations whose virtual hosts Envoy has received.
	hosts map[string]bool
	// incomplete is set if Envoy has resources that the store does not have.
	incomplete bool
	timer      *time.Timer // nil if it does not run
	due        time.Time   // when it ends
	ended      bool
}

func newCoverage(store *lastgood.Store) *coverage {
	return &coverage{store: store, had: map[string]bool{}, said: map[string]time.Time{}, open: map[string]map[string]bool{routeURL: {}, hostURL: {}, extension.URL: {}}, hosts: map[string]bool{}}
}

// begin notes that Envoy requests all clusters or listeners, and which versions it has. If it has none, the resources of an earlier stream are
// removed from the store: some may not exist any more. If it has resources that the store does not have, this stream cannot complete the store.
func (c *coverage) begin(typeURL string, has map[string]string) {
	if typeURL != clusterURL && typeURL != listenerURL || complete(c.store) {
		return
	}
	if len(has) == 0 {
		c.store.Replace(typeURL, nil)
		return
	}
	names := slices.Collect(maps.Keys(has))
	list, missing := c.store.Named(typeURL, names)
	other := slices.ContainsFunc(list, func(r *discoveryv3.Resource) bool { return has[r.GetName()] != r.GetVersion() })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.incomplete = c.incomplete || other || len(missing) > 0; !c.incomplete {
		c.said[typeURL] = time.Now()
		c.await(settled)
	}
}

// asked notes that Envoy requests names of a type, or does not want some any more.
func (c *coverage) asked(typeURL string, names, gone []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.open[typeURL]
	if open == nil || typeURL == hostURL { // virtual hosts on demand: no listener waits for one
		return
	}
	for _, name := range names {
		open[name] = true
	}
	for _, name := range gone {
		delete(open, name)
		if typeURL == routeURL {
			delete(c.open[hostURL], name)
			delete(c.hosts, name)
		}
	}
	c.await(settled)
}

// answered notes that Envoy has received resources, or the answer that they do not exist.
func (c *coverage) answered(typeURL string, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if typeURL == hostURL {
			name = routeOf(name)
			c.hosts[name] = true
		}
		delete(c.open[typeURL], name)
	}
	c.await(settled)
}

// splits notes that Envoy has received route configurations whose virtual hosts follow.
func (c *coverage) splits(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if !c.hosts[name] {
			c.open[hostURL][name] = true
		}
	}
}

// acknowledged notes that Envoy has accepted a response of a type.
func (c *coverage) acknowledged(typeURL string, more bool) {
	if typeURL != clusterURL && typeURL != listenerURL || complete(c.store) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.had[typeURL] = !more
	delete(c.said, typeURL)
	c.await(settled)
}

// await checks after a pause, or sooner, whether something is missing. It is called with the lock held, whenever that may have changed.
func (c *coverage) await(pause time.Duration) {
	due := time.Now().Add(pause)
	switch {
	case c.ended || c.incomplete || complete(c.store):
	case c.timer == nil:
		c.timer, c.due = time.AfterFunc(pause, c.check), due
	case due.Before(c.due) && c.timer.Stop():
		c.timer.Reset(pause)
		c.due = due
	}
}

// check notes in the store that the types are complete if nothing is missing.
func (c *coverage) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	if c.ended || c.incomplete {
		return
	}
	for _, typeURL := range []string{clusterURL, listenerURL} {
		if c.had[typeURL] {
			continue
		}
		said, says := c.said[typeURL]
		left := presumed - time.Since(said)
		if says && left > 0 {
			c.await(left)
		}
		if !says || left > 0 {
			return
		}
	}
	if len(c.open[routeURL])+len(c.open[hostURL])+len(c.open[extension.URL]) == 0 {
		c.store.Finish(keptTypes()...)
	}
}

// stop ends the search.
func (c *coverage) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

// divided reports whether a version announces another part of the response.
func divided(version string) bool { return strings.HasSuffix(version, moreFollows) }
