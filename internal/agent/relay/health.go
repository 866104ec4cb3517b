package relay

import (
	"context"
	"sync"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// healthURL is the type of requests that report the health of the workload: one with an error is a failure. There is no answer.
const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// Health is whether the workload is healthy, and why it is not.
type Health struct {
	Healthy bool
	Reason  string
}

// announcement is the health that all streams report. Its zero value reports nothing yet.
type announcement struct {
	mu      sync.Mutex
	health  Health
	known   bool
	changed chan struct{} // is closed at the next change; nil if no stream waits
}

// get returns the present health, whether it is known, and a channel that is closed when it changes.
func (a *announcement) get() (h Health, known bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.health, a.known, a.changed
}

// Health returns the reported health, and whether the streams report any.
func (r *Relay) Health() (h Health, known bool) {
	h, known, _ = r.health.get()
	return h, known
}

// Report makes the streams to the control plane report the health of the workload: at once, and again whenever another one is opened.
func (r *Relay) Report(h Health) {
	a := &r.health
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known && a.health == h {
		return
	}
	a.health, a.known = h, true
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// tellHealth reports the health of the workload on the stream, as soon as Envoy's first request has been passed on: that request identifies
// the proxy.
func (s *session) tellHealth(ctx context.Context, a *announcement) {
	select {
	case <-s.begun:
	case <-ctx.Done():
		return
	}
	for {
		h, known, changed := a.get()
		if known {
			if err := s.sendOwn(question{typeURL: healthURL, failure: h.failure()}); err != nil {
				return // receiving from the control plane says why
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// failure is the error of a report about an unhealthy workload; nil if it is healthy.
func (h Health) failure() *rpcstatus.Status {
	if h.Healthy {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.Internal), Message: h.Reason}
}
