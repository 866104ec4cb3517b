package relay

import (
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/agent/extension"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
)

const deltaMethod = "DeltaAggregatedResources"

// delta is the dialect of delta xDS.
type delta struct {
	// asked are the types that Envoy has requested on this stream.
	asked map[string]bool
	// given are the resources of the answers of the relay, by their nonces, until Envoy has accepted or refused them. mu guards all.
	mu    sync.Mutex
	given map[string][]string
	// hosts are the versions of the replayed virtual hosts, by name.
	hosts map[string]string
}

// request implements dialect.
func (d *delta) request(s *session, f *frame) (*frame, error) {
	var q discoveryv3.DeltaDiscoveryRequest
	if !readable(f.data.Materialize(), &q) || !kept(q.GetTypeUrl()) {
		return f, nil
	}
	d.mu.Lock()
	first := !d.asked[q.GetTypeUrl()]
	d.asked[q.GetTypeUrl()] = true
	d.mu.Unlock()
	s.covered.asked(q.GetTypeUrl(), q.GetResourceNamesSubscribe(), q.GetResourceNamesUnsubscribe())
	changed, empty, err := d.note(s, &q)
	if err != nil {
		return nil, err
	}
	if names := q.GetResourceNamesUnsubscribe(); len(names) > 0 {
		s.forget(q.GetTypeUrl(), names)
	}
	switch asks := first || len(q.GetResourceNamesSubscribe()) > 0; {
	case q.GetTypeUrl() == hostURL:
		if d.hostRequest(&q, first) {
			changed, empty = true, false
		}
		empty = empty || s.up == nil
	case s.up == nil && asks:
		return nil, d.replay(s, &q, first)
	case s.up != nil && first && !complete(s.store):
		s.covered.begin(q.GetTypeUrl(), q.GetInitialResourceVersions())
	case s.up != nil && first && len(q.GetInitialResourceVersions()) == 0:
		if err := d.replay(s, &q, true); err != nil {
			return nil, err
		}
		changed = changed || len(q.GetInitialResourceVersions()) > 0
	}
	if empty {
		return nil, nil
	}
	if !changed {
		return f, nil
	}
	b, err := proto.Marshal(&q)
	return &frame{mem.BufferSlice{mem.SliceBuffer(b)}}, err
}

// note handles the acknowledgement in a request. If it acknowledges an answer of the relay, the request is changed so that the control
// plane does not see that; empty is true if nothing else is in it.
func (d *delta) note(s *session, q *discoveryv3.DeltaDiscoveryRequest) (changed, empty bool, err error) {
	nonce := q.GetResponseNonce()
	if !strings.HasPrefix(nonce, localNonce) {
		if nonce != "" {
			err = s.acknowledged(q.GetTypeUrl(), nonce, q.GetErrorDetail())
		}
		if err != nil {
			return false, false, err
		}
		changed, empty = s.extensions.delta(q)
		return changed, empty, nil
	}
	err = d.taken(s, q.GetTypeUrl(), nonce, q.GetErrorDetail())
	q.ResponseNonce, q.ErrorDetail = "", nil
	return true, len(q.GetResourceNamesSubscribe()) == 0 && len(q.GetResourceNamesUnsubscribe()) == 0, err
}

// taken handles Envoy's acknowledgement or refusal of an answer of the relay. If Envoy refuses a part, it keeps all or nothing of the
// answer, so the relay sends the rest again.
func (d *delta) taken(s *session, typeURL, nonce string, refusal *rpcstatus.Status) error {
	d.mu.Lock()
	given := d.given[nonce]
	delete(d.given, nonce)
	d.mu.Unlock()
	if refusal == nil {
		s.store.Restore(typeURL, given...)
		return nil
	}
	rest := s.setAside(typeURL, refusal.GetMessage(), given)
	if s.up != nil {
		return errRefused // the control plane has a report that Envoy has it
	}
	s.retries.next()
	if list, _ := s.store.Named(typeURL, rest); len(list) > 0 {
		return d.give(s, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: list})
	}
	return nil
}

// give sends an answer of the relay.
func (d *delta) give(s *session, a *discoveryv3.DeltaDiscoveryResponse) error {
	a.Nonce = s.nonce()
	names := make([]string, 0, len(a.GetResources()))
	for _, r := range a.GetResources() {
		names = append(names, r.GetName())
	}
	d.mu.Lock()
	d.given[a.GetNonce()] = names
	d.mu.Unlock()
	return s.answer(a)
}

// offer implements dialect.
func (d *delta) offer(s *session) error {
	for _, typeURL := range keptTypes() {
		d.mu.Lock()
		asked := d.asked[typeURL]
		d.mu.Unlock()
		list := s.extensions.usable(typeURL, s.store.Refused(typeURL))
		if !asked || len(list) == 0 {
			continue
		}
		if err := d.give(s, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Resources: list}); err != nil {
			return err
		}
	}
	return nil
}

// replay sends Envoy the requested resources from the store, except for those it has. It adds to the request the versions that Envoy has
// then. Without a control plane, it also lists the names that do not exist: Envoy would wait for them.
func (d *delta) replay(s *session, q *discoveryv3.DeltaDiscoveryRequest, first bool) error {
	list, missing := asked(s.store, q, first)
	if first && s.up == nil && len(list)+len(missing) == 0 {
		list = s.store.Refused(q.GetTypeUrl()) // an Envoy without any of them would be ready
	}
	list = s.extensions.usable(q.GetTypeUrl(), list)
	list, hosts, lacking := s.served(q.GetTypeUrl(), list)
	missing = append(missing, lacking...)
	has := func(name string) bool {
		_, ok := q.GetInitialResourceVersions()[name]
		return ok
	}
	list = slices.DeleteFunc(list, func(r *discoveryv3.Resource) bool { return has(r.GetName()) })
	hosts = slices.DeleteFunc(hosts, func(of hosted) bool { return has(of.route) })
	missing = slices.DeleteFunc(missing, func(name string) bool { return s.up != nil || has(name) })
	if len(list)+len(missing) == 0 && (s.up != nil || !first || len(q.GetInitialResourceVersions()) > 0) {
		return nil // otherwise Envoy waits to hear that there is nothing
	}
	if q.InitialResourceVersions == nil {
		q.InitialResourceVersions = map[string]string{}
	}
	for _, r := range list {
		q.InitialResourceVersions[r.GetName()] = r.GetVersion()
	}
	if err := d.give(s, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: q.GetTypeUrl(), Resources: list, RemovedResources: missing}); err != nil {
		return err
	}
	return d.giveHosts(s, hosts)
}

// asked returns the resources of the store that a request asks for. The first request of a type without names asks for everything, like a
// request for "*".
func asked(store *lastgood.Store, q *discoveryv3.DeltaDiscoveryRequest, first bool) (list []*discoveryv3.Resource, missing []string) {
	names := q.GetResourceNamesSubscribe()
	if slices.Contains(names, "*") || first && len(names) == 0 {
		return store.All(q.GetTypeUrl()), nil
	}
	return store.Named(q.GetTypeUrl(), names)
}

// update implements dialect.
func (*delta) update(data []byte) *update {
	var a discoveryv3.DeltaDiscoveryResponse
	if !readable(data, &a) {
		return nil
	}
	return &update{nonce: a.GetNonce(), version: a.GetSystemVersionInfo(), resources: a.GetResources(), removed: a.GetRemovedResources()}
}

// message implements dialect.
func (*delta) message(u *update) proto.Message {
	return &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: extension.URL, Nonce: u.nonce, SystemVersionInfo: u.version, Resources: u.resources, RemovedResources: u.removed,
	}
}

// own implements dialect.
func (*delta) own(q question) proto.Message {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: q.typeURL, ResourceNamesSubscribe: q.names, ResponseNonce: q.nonce, ErrorDetail: q.failure}
}

// response implements dialect.
func (d *delta) response(s *session, data []byte) (response, bool) {
	var a discoveryv3.DeltaDiscoveryResponse
	if !readable(data, &a) || !kept(a.GetTypeUrl()) {
		return response{}, false
	}
	names := slices.Clone(a.GetRemovedResources())
	for _, r := range a.GetResources() {
		names = append(names, r.GetName())
	}
	return response{
		typeURL: a.GetTypeUrl(), nonce: a.GetNonce(), names: names, more: divided(a.GetSystemVersionInfo()),
		split: splitNames(a.GetTypeUrl(), a.GetResources()),
		accept: func() {
			present, absent := existing(a.GetTypeUrl(), a.GetResources())
			s.store.Accept(a.GetTypeUrl(), present, append(absent, a.GetRemovedResources()...))
		},
	}, true
}
