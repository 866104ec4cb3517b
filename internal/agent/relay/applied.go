package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/run/retry"
)

// appliedURL is the type of the requests that report to the control plane which resources Envoy has received and does not use yet. The names of the
// request are all such resources, as URL/NAME, where URL is the type URL of the resource, and URL/* for further ones of a type. One more name,
// drainingURL/CHAINS/CONNECTIONS, has the number of filter chains that Envoy drains, and the greatest possible number of their connections.
const (
	appliedURL  = "type.googleapis.com/pilot.v1.Applied"
	drainingURL = "type.googleapis.com/pilot.v1.Draining"
)

const (
	// askLimit is how long an acknowledgement waits for Envoy to report warming resources. It answers within a few milliseconds unless it
	// is very busy.
	askLimit = 100 * time.Millisecond
	// The shortest and longest pause between queries to Envoy while something is warming.
	firstAsk, lastAsk = 50 * time.Millisecond, 2 * time.Second
	// startAsk is the longest pause while Envoy starts. Then it answers from memory, and people wait for the end of the start.
	startAsk = 200 * time.Millisecond
)

// applied reports to the control plane, on one stream, resources that Envoy has received and does not use yet, and draining connections. It
// asks Envoy before an acknowledgement of listeners is passed on, so that the control plane never has the acknowledgement alone; and while
// one is missing, because Envoy acknowledges clusters only when none is warming. It asks again until nothing is warming or draining. An
// empty report is sent only after another one.
type applied struct {
	// ask asks Envoy about its listeners and, if clusters is true, its clusters; nil if there is no Envoy.
	ask    func(ctx context.Context, clusters bool) (envoy.Warming, error)
	report func(names []string) error
	// waits reports whether Envoy has not answered a response with clusters or listeners.
	waits func() bool

	// mu is held while Envoy is asked, so that reports have the order of Envoy's answers.
	mu sync.Mutex
	// reported is the last report on this stream. silent is set if Envoy has not answered the last query.
	reported []string
	silent   bool
	// starting is set if Envoy had no configuration when it was last asked.
	starting bool
	// drains asks Envoy for its draining connections; nil if there is no Envoy. draining is its last answer.
	drains   func(ctx context.Context) (envoy.Draining, error)
	draining envoy.Draining

	// watching is set while a goroutine asks at intervals.
	watching atomic.Bool
}

// concerns reports whether Envoy warms resources of a type.
func (a *applied) concerns(typeURL string) bool {
	return a.ask != nil && (typeURL == clusterURL || typeURL == listenerURL)
}

// begin asks at the beginning of the stream: Envoy may not use yet some resources that it has acknowledged on an earlier one.
func (a *applied) begin(ctx context.Context) error {
	if a.ask == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.check(ctx, true, true)
}

// sent begins to ask at intervals as long as Envoy does not answer a response of a type.
func (a *applied) sent(ctx context.Context, typeURL string) {
	if a.concerns(typeURL) {
		a.follow(ctx)
	}
}

// answered asks when Envoy has answered a response of a type.
func (a *applied) answered(ctx context.Context, typeURL string) error {
	if !a.concerns(typeURL) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if typeURL == clusterURL && len(a.reported) == 0 && !a.silent {
		return nil // none is warming, or the answer would not be there
	}
	return a.check(ctx, false, typeURL == listenerURL)
}

// check asks Envoy, and reports a change to the control plane. If something is warming, or Envoy does not answer, it begins to ask again
// until nothing is, or ctx ends. The caller holds mu.
func (a *applied) check(ctx context.Context, clusters, listeners bool) error {
	more, err := a.once(ctx, clusters, listeners)
	if more && err == nil {
		a.follow(ctx)
	}
	return err
}

// follow asks until nothing is warming and Envoy has answered everything, or ctx ends. It does not wait.
func (a *applied) follow(ctx context.Context) {
	if a.watching.CompareAndSwap(false, true) {
		go a.watch(ctx)
	}
}

// watch is the goroutine of follow.
func (a *applied) watch(ctx context.Context) {
	for pauses := retry.Pauses(firstAsk, lastAsk); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.atMost(pauses.NextBackOff())):
		}
		if !a.again(ctx) {
			return
		}
	}
}

// atMost returns a pause before the next query, which is shorter while Envoy starts.
func (a *applied) atMost(pause time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starting {
		return min(pause, startAsk)
	}
	return pause
}

// again asks once more if there is a reason to, and reports whether to continue.
func (a *applied) again(ctx context.Context) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits() || len(a.reported) > 0 || a.silent {
		more, err := a.once(ctx, true, false)
		if err != nil {
			return false // the stream ends
		}
		if more || a.waits() {
			return true
		}
	}
	a.watching.Store(false)
	// A response may have been sent just before that. Then no other goroutine asks.
	return a.waits() && a.watching.CompareAndSwap(false, true)
}

// once asks Envoy once. listeners is set if some may have changed since. more is true if there is a reason to ask again.
func (a *applied) once(ctx context.Context, clusters, listeners bool) (more bool, err error) {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	clusters = clusters || len(a.reported) > 0
	now, err := a.ask(limited, clusters)
	if a.silent = err != nil; a.silent {
		return true, nil
	}
	a.starting = now.Starting
	if err := a.look(limited, listeners || len(now.Listeners) > 0); err != nil {
		a.silent = true // and warming resources are reported all the same
	}
	names := warmingNames(now)
	if d := a.draining; d.FilterChains > 0 {
		names = append(names, fmt.Sprintf("%s/%d/%d", drainingURL, d.FilterChains, d.Connections))
	}
	if slices.Equal(names, a.reported) {
		return len(names) > 0 || a.silent, nil
	}
	a.reported = names
	return len(names) > 0 || a.silent, a.report(names)
}

// look asks Envoy for draining connections, if there may be any: listeners have changed, or something was warming or draining. Envoy counts
// all open connections; as long as nothing else begins to drain, connections that were opened since do not count.
func (a *applied) look(ctx context.Context, changed bool) error {
	if a.drains == nil || !changed && len(a.reported) == 0 && !a.silent {
		return nil
	}
	now, err := a.drains(ctx)
	if err != nil {
		return err
	}
	if !changed && now.FilterChains <= a.draining.FilterChains {
		now.Connections = min(now.Connections, a.draining.Connections)
	}
	a.draining = now
	return nil
}

// warmingNames returns the names of a report.
func warmingNames(w envoy.Warming) (names []string) {
	for _, of := range []struct {
		typeURL string
		names   []string
		more    bool
	}{
		{clusterURL, w.Clusters, w.MoreClusters || w.Starting},
		{listenerURL, w.Listeners, w.MoreListeners || w.Starting},
	} {
		for _, name := range of.names {
			names = append(names, of.typeURL+"/"+name)
		}
		if of.more {
			names = append(names, of.typeURL+"/*")
		}
	}
	return names
}
