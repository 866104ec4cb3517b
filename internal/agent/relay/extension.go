package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/wasm"
	"github.com/pilotmesh/pilot/internal/run/retry"
)

// Modules fetches the modules of Wasm filters.
type Modules interface {
	// Get returns the path of a module. If ctx ends before it is fetched, a later call may return it.
	Get(ctx context.Context, m wasm.Module) (string, error)
	// Holds reports whether Envoy can still load the module in a file.
	Holds(path string) bool
}

const (
	// moduleNonce begins the nonces of responses with filters whose modules arrived late.
	moduleNonce = "wasm-module/"
	// unfetched ends the versions of stand-in filters. The control plane does not know these versions, so it sends the filter again to an
	// Envoy that lists one.
	unfetched = "+unfetched"
	// Shortest and longest pause before modules that could not be fetched are requested again, and how long that request may take. A module
	// that takes longer is available at the next attempt.
	firstFetch, lastFetch = 2 * time.Second, 5 * time.Minute
	again                 = 100 * time.Millisecond
	// waiting is how many responses about extensions may wait, and maxReason the length of the longest reason for a NACK.
	waiting, maxReason = 64, 2048
)

// update is a response about extensions, of either dialect.
type update struct {
	nonce, version string
	resources      []*discoveryv3.Resource
	removed        []string
	// whole says that resources are the complete list.
	whole bool
}

// failedFilter is a filter whose module could not be fetched.
type failedFilter struct {
	filter *extension.Filter
	// resource is the control plane's resource, from the response with the nonce.
	resource *discoveryv3.Resource
	nonce    string
	why      string
}

// extensions rewrites the extensions of one stream. Its goroutine handles responses one after the other.
type extensions struct {
	session *session
	modules Modules
	// shortest is the shortest pause before modules that could not be fetched are requested again.
	shortest time.Duration
	ctx      context.Context // the context of the stream
	cancel   context.CancelFunc
	started  sync.Once
	done     sync.WaitGroup
	queue    chan waitingFrame
	// last is the newest response, and answers counts the responses of the relay itself. Only the goroutine uses them.
	last    *update
	answers int

	// accepted is the last version that the control plane received as the one in force, with State-of-the-World xDS. Only the goroutine
	// that reads from Envoy uses it.
	accepted string

	mu     sync.Mutex
	failed map[string]*failedFilter // by names
	// late maps the nonces of the relay's later responses to the nonces of the control plane's responses that they complete.
	late map[string]string
}

// waitingFrame is a message, and its content.
type waitingFrame struct {
	frame *frame
	data  []byte
}

func newExtensions(s *session, r *Relay) *extensions {
	e := &extensions{session: s, modules: r.modules, shortest: r.fetchPause, queue: make(chan waitingFrame, waiting), failed: map[string]*failedFilter{}, late: map[string]string{}}
	e.ctx, e.cancel = context.WithCancel(s.down.Context())
	return e
}

// add takes a response. It blocks if too many are waiting.
func (e *extensions) add(f *frame, data []byte) {
	e.started.Do(func() { e.done.Go(e.run) })
	select {
	case e.queue <- waitingFrame{f, data}:
	case <-e.ctx.Done():
	}
}

// stop ends the goroutine.
func (e *extensions) stop() {
	e.cancel()
	e.done.Wait()
}

// run handles responses, and requests modules again that could not be fetched, until the stream ends.
func (e *extensions) run() {
	pauses := retry.Pauses(e.shortest, lastFetch)
	pause := pauses.NextBackOff()
	for {
		var retry <-chan time.Time
		if e.lacking() {
			retry = time.After(pause)
		}
		var err error
		select {
		case <-e.ctx.Done():
			return
		case w := <-e.queue:
			pauses.Reset()
			pause = pauses.NextBackOff()
			err = e.handle(w)
		case <-retry:
			pause = pauses.NextBackOff()
			err = e.retry()
		}
		if err != nil {
			return // the stream is broken; its reader gets the error
		}
	}
}

func (e *extensions) lacking() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.failed) > 0
}

// handle sends a response to Envoy.
func (e *extensions) handle(w waitingFrame) error {
	u := e.session.dialect.update(w.data)
	var filters []*extension.Filter
	if u != nil {
		filters = make([]*extension.Filter, len(u.resources))
		for i, r := range u.resources {
			filters[i] = extension.Read(r.GetResource())
		}
	}
	if !slices.ContainsFunc(filters, func(f *extension.Filter) bool { return f != nil }) {
		e.renew(u, nil)
		return e.session.pass(w.frame, w.data)
	}
	w.frame.data.Free()
	failed := e.fill(u, filters)
	good := slices.DeleteFunc(slices.Clone(u.resources), func(r *discoveryv3.Resource) bool { return failed[r.GetName()] != nil })
	e.renew(u, failed)
	for i := range u.resources {
		if l := failed[u.resources[i].GetName()]; l != nil {
			u.resources[i] = e.instead(l, u.whole)
		}
	}
	u.resources = slices.DeleteFunc(u.resources, func(r *discoveryv3.Resource) bool { return r == nil })
	return e.send(u, good)
}

// fill rewrites the filters of a response. It returns the filters whose modules could not be fetched in time, by their names.
func (e *extensions) fill(u *update, filters []*extension.Filter) map[string]*failedFilter {
	errs := make([]error, len(filters))
	var fetches sync.WaitGroup
	for i, f := range filters {
		if f != nil {
			fetches.Go(func() {
				ctx, cancel := context.WithTimeout(e.ctx, f.Wait)
				defer cancel()
				errs[i] = e.rewrite(ctx, f, &u.resources[i])
			})
		}
	}
	fetches.Wait()
	failed := map[string]*failedFilter{}
	for i, err := range errs {
		if err != nil {
			r := u.resources[i]
			failed[r.GetName()] = &failedFilter{filter: filters[i], resource: r, nonce: u.nonce, why: err.Error()}
			e.session.log.Warn("the module of a Wasm filter cannot be fetched; the agent tries again", "filter", r.GetName(), "fail_open", filters[i].Open, "error", err)
		}
	}
	return failed
}

// rewrite replaces a resource by one that Envoy can use.
func (e *extensions) rewrite(ctx context.Context, f *extension.Filter, r **discoveryv3.Resource) error {
	path := ""
	var err error
	if f.Module != nil {
		if path, err = e.modules.Get(ctx, *f.Module); err != nil {
			return err
		}
	}
	body, err := f.With(path)
	if err != nil {
		return err
	}
	*r = withBody(*r, body, (*r).GetVersion())
	return nil
}

// withBody returns a resource with another body and version.
func withBody(r *discoveryv3.Resource, body *anypb.Any, version string) *discoveryv3.Resource {
	with := proto.CloneOf(r)
	with.Resource, with.Version = body, version
	return with
}

// instead returns the replacement for a filter whose module could not be fetched: the last good version of the filter, or the stand-in
// filter; nil if Envoy has the last good version.
func (e *extensions) instead(l *failedFilter, whole bool) *discoveryv3.Resource {
	name := l.resource.GetName()
	earlier, _ := e.session.store.Named(extension.URL, []string{name})
	if earlier = e.usable(extension.URL, earlier); len(earlier) > 0 {
		if !whole {
			return nil
		}
		return withBody(l.resource, earlier[0].GetResource(), l.resource.GetVersion()+unfetched)
	}
	body, err := l.filter.StandIn()
	if err != nil {
		e.session.log.Error("a Wasm filter has no stand-in", "filter", name, "error", err)
		return nil
	}
	return withBody(l.resource, body, l.resource.GetVersion()+unfetched)
}

// renew notes the content of a response of the control plane. It forgets the failures of earlier responses for the same filters.
func (e *extensions) renew(u *update, failed map[string]*failedFilter) {
	if u == nil {
		return
	}
	e.last = u
	e.mu.Lock()
	defer e.mu.Unlock()
	if u.whole {
		clear(e.failed)
		clear(e.late)
	}
	for _, r := range u.resources {
		delete(e.failed, r.GetName())
	}
	for _, name := range u.removed {
		delete(e.failed, name)
	}
	maps.Copy(e.failed, failed)
}

// send sends a response to Envoy. When Envoy has acknowledged it, the good resources are stored.
func (e *extensions) send(u *update, good []*discoveryv3.Resource) error {
	b, err := proto.Marshal(e.session.dialect.message(u))
	if err != nil {
		return err
	}
	s := e.session
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Clone(u.removed)
	for _, r := range u.resources {
		names = append(names, r.GetName())
	}
	s.covered.answered(extension.URL, names)
	s.pending[extension.URL] = append(s.pending[extension.URL], response{typeURL: extension.URL, nonce: u.nonce, names: names, accept: func() {
		s.store.Accept(extension.URL, good, u.removed)
	}})
	return s.down.SendMsg(&frame{mem.BufferSlice{mem.SliceBuffer(b)}})
}

// retry requests modules again that could not be fetched, and sends Envoy the filters whose modules are now available.
func (e *extensions) retry() error {
	e.mu.Lock()
	list := slices.SortedFunc(maps.Values(e.failed), func(a, b *failedFilter) int { return strings.Compare(a.resource.GetName(), b.resource.GetName()) })
	e.mu.Unlock()
	for _, l := range list {
		r := l.resource
		ctx, cancel := context.WithTimeout(e.ctx, again)
		err := e.rewrite(ctx, l.filter, &r)
		cancel()
		if err != nil || !e.had(l) {
			continue
		}
		e.session.log.Info("the module of a Wasm filter is at hand", "filter", r.GetName())
		if err := e.sendLate(l, r); err != nil {
			return err
		}
	}
	return nil
}

// had notes that a filter has its module, and reports whether the filter is still wanted.
func (e *extensions) had(l *failedFilter) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := l.resource.GetName()
	if e.failed[name] != l {
		return false
	}
	delete(e.failed, name)
	return true
}

// sendLate sends Envoy a filter whose module arrived after the response of the control plane.
func (e *extensions) sendLate(l *failedFilter, r *discoveryv3.Resource) error {
	e.answers++
	u := &update{nonce: fmt.Sprint(moduleNonce, e.answers), version: e.last.version, whole: e.last.whole, resources: []*discoveryv3.Resource{r}}
	if u.whole {
		u.resources = slices.Clone(e.last.resources)
		for i, before := range u.resources {
			if before.GetName() == r.GetName() {
				u.resources[i] = r
			}
		}
		e.last = u
	}
	e.mu.Lock()
	e.late[u.nonce] = l.nonce
	e.mu.Unlock()
	return e.send(u, []*discoveryv3.Resource{r})
}

// answer returns the acknowledgement for the control plane when Envoy answers a response: the nonce of the control plane's own response,
// empty if it is outdated, and the error. Envoy's acceptance of a stand-in filter is no acknowledgement of the filter.
func (e *extensions) answer(nonce string, detail *rpcstatus.Status) (string, *rpcstatus.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if strings.HasPrefix(nonce, moduleNonce) {
		nonce = e.late[nonce]
	}
	var why []string
	for _, name := range slices.Sorted(maps.Keys(e.failed)) {
		if l := e.failed[name]; l.nonce == nonce {
			why = append(why, name+": "+l.why)
		}
	}
	if len(why) == 0 {
		return nonce, detail
	}
	if detail != nil { // it may be about a stand-in filter
		why = append(why, "Envoy: "+detail.GetMessage())
	}
	text := strings.Join(why, "; ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return nonce, &rpcstatus.Status{Code: int32(codes.Unavailable), Message: text}
}

// delta changes a request of delta xDS about extensions, so that the control plane learns which of them are in force. empty is true if
// nothing is left to report.
func (e *extensions) delta(q *discoveryv3.DeltaDiscoveryRequest) (changed, empty bool) {
	if q.GetTypeUrl() != extension.URL {
		return false, false
	}
	e.forget(q.GetResourceNamesUnsubscribe())
	nonce, detail := q.GetResponseNonce(), q.GetErrorDetail()
	if nonce == "" {
		return false, false
	}
	q.ResponseNonce, q.ErrorDetail = e.answer(nonce, detail)
	if strings.HasPrefix(nonce, moduleNonce) && detail == nil && q.GetErrorDetail() != nil {
		q.ResponseNonce = "" // the control plane has the acknowledgement of the others
	}
	if q.GetResponseNonce() == "" {
		q.ErrorDetail = nil
	}
	changed = q.GetResponseNonce() != nonce || q.GetErrorDetail() != detail
	return changed, q.GetResponseNonce() == "" && len(q.GetResourceNamesSubscribe())+len(q.GetResourceNamesUnsubscribe()) == 0
}

// forget notes that Envoy does not want some extensions any more.
func (e *extensions) forget(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		delete(e.failed, name)
	}
}

// want notes which extensions Envoy wants.
func (e *extensions) want(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.failed, func(name string, _ *failedFilter) bool { return !slices.Contains(names, name) })
}

// whole returns the request of State-of-the-World xDS to pass on, so that the control plane learns the version in force; nil for none.
func (e *extensions) whole(f *frame, q *discoveryv3.DiscoveryRequest) (*frame, error) {
	if q.GetTypeUrl() != extension.URL {
		return f, nil
	}
	nonce, detail, version := q.GetResponseNonce(), q.GetErrorDetail(), q.GetVersionInfo()
	e.want(q.GetResourceNames())
	if nonce != "" {
		if q.ResponseNonce, q.ErrorDetail = e.answer(nonce, detail); q.GetResponseNonce() == "" {
			return nil, nil // there is a newer response, and the answer to it reports the same again
		}
	}
	lacking, stands := detail == nil && q.GetErrorDetail() != nil, strings.HasSuffix(version, unfetched)
	switch {
	case stands && !lacking && detail == nil && nonce != "":
		return nil, nil // the modules have arrived since: likewise
	case stands || lacking:
		q.VersionInfo = e.accepted
	case detail == nil:
		e.accepted = version
	}
	if q.GetResponseNonce() == nonce && q.GetErrorDetail() == detail && q.GetVersionInfo() == version {
		return f, nil
	}
	b, err := proto.Marshal(q)
	return &frame{mem.BufferSlice{mem.SliceBuffer(b)}}, err
}

// usable returns the resources that Envoy can use: extensions only if their modules are available.
func (e *extensions) usable(typeURL string, list []*discoveryv3.Resource) []*discoveryv3.Resource {
	if typeURL != extension.URL {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *discoveryv3.Resource) bool {
		file := extension.File(r.GetResource())
		return file != "" && !e.modules.Holds(file)
	})
}
