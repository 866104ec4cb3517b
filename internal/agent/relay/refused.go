package relay

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/extension"
)

// errRefused ends a stream whose first request listed resources that Envoy has refused since. On the next stream Envoy lists its resources
// itself, and the control plane sends the missing ones and receives Envoy's answer.
var errRefused = errors.New("Envoy refuses a part of the last known good configuration: open another stream and report the resources that it has")

// errAgain ends a stream after Envoy has refused a resource that it may accept by now.
var errAgain = errors.New("Envoy has refused what it may take by now: open another stream")

const (
	// The shortest and longest pause before a refused resource is sent to Envoy again.
	firstAgain, lastAgain = 2 * time.Second, 2 * time.Minute
	// busy is a part of Envoy's error about a listener whose port another process has.
	busy = "cannot bind"
)

// retries returns the pauses before refused resources are sent to Envoy again. They grow while Envoy refuses any.
type retries struct {
	mu    sync.Mutex
	pause time.Duration
	due   time.Time // when the last pause is over
}

// next returns the next pause.
func (r *retries) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.due) > lastAgain {
		r.pause = 0 // Envoy has refused nothing for long
	}
	r.pause = min(max(firstAgain, 2*r.pause), lastAgain)
	r.due = time.Now().Add(r.pause)
	return r.pause
}

// over reports whether the last pause is over.
func (r *retries) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.due)
}

// end ends the stream to the control plane, and then Envoy's stream.
func (s *session) end(why error) {
	s.ends.CompareAndSwap(nil, &why)
	s.up.cancel()
}

// refuses handles a refusal that is passed on to the control plane. Envoy may accept the resource later if it accepted it once, or if another
// process has its port. The control plane does not send the same content twice on one stream, so the stream is ended after a pause.
func (s *session) refuses(typeURL, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retry != nil || !strings.Contains(why, busy) && len(s.store.Refused(typeURL)) == 0 {
		return
	}
	pause := s.retries.next()
	s.log.Info("Envoy has refused what it may accept later; it is asked for again", "type", typeURL, "in", pause.String(), "error", why)
	s.retry = time.AfterFunc(pause, func() { s.end(errAgain) })
}

// setAside removes the refused ones of the given resources from the store, and returns the others.
func (s *session) setAside(typeURL, why string, given []string) (rest []string) {
	bad := blamed(why, given)
	s.log.Warn("Envoy refuses a part of the last known good configuration, which is set aside", "type", typeURL, "resources", len(bad), "of", len(given), "error", why)
	s.store.Refuse(typeURL, bad...)
	return slices.DeleteFunc(slices.Clone(given), func(name string) bool { return slices.Contains(bad, name) })
}

// blamed returns the names of the refused resources. Envoy's reason has each before a colon; if it has none, all may be to blame.
func blamed(why string, names []string) (list []string) {
	text := " " + strings.NewReplacer("\n", " ", "\t", " ").Replace(why)
	for _, name := range names {
		if strings.Contains(text, " "+name+": ") || strings.Contains(text, "'"+name+"'") {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return names
	}
	return list
}

// offers sends refused resources to Envoy again while there is no control plane, if the pause is over.
func (s *session) offers() error {
	if !s.retries.over() || !slices.ContainsFunc(keptTypes(), func(typeURL string) bool { return len(s.store.Refused(typeURL)) > 0 }) {
		return nil
	}
	s.retries.next()
	return s.dialect.offer(s)
}

// keptTypes are the types that are kept: Envoy does not serve without them. Secrets are not among them.
func keptTypes() []string {
	return []string{clusterURL, assignmentURL, listenerURL, routeURL, hostURL, extension.URL}
}
