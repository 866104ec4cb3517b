package relay

import (
	"slices"
	"strings"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/extension"
)

const (
	clusterURL    = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listenerURL   = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeURL      = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	assignmentURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// wholeState is the dialect of State-of-the-World xDS.
type wholeState struct {
	// mu guards the following: names are the names that Envoy requests, by type. sent are the types that the relay has answered from the
	// store for these names, and given the resources of its answers, by their nonces, until Envoy has accepted or refused them.
	mu    sync.Mutex
	names map[string][]string
	sent  map[string]bool
	given map[string][]string
}

// request implements dialect.
func (w *wholeState) request(s *session, f *frame) (*frame, error) {
	var q discoveryv3.DiscoveryRequest
	if !readable(f.data.Materialize(), &q) || !kept(q.GetTypeUrl()) {
		return f, nil
	}
	typeURL, names, nonce := q.GetTypeUrl(), q.GetResourceNames(), q.GetResponseNonce()
	local := strings.HasPrefix(nonce, localNonce)
	if nonce != "" && !local {
		if err := s.acknowledged(typeURL, nonce, q.GetErrorDetail()); err != nil {
			return nil, err
		}
	}
	all := typeURL == clusterURL || typeURL == listenerURL
	w.mu.Lock()
	before, known := w.names[typeURL]
	changed := !known || !slices.Equal(before, names)
	if changed {
		w.names[typeURL] = slices.Clone(names)
		delete(w.sent, typeURL)
	}
	w.mu.Unlock()
	if changed && !all {
		s.store.Keep(typeURL, names)
		gone := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(names, name) })
		s.covered.asked(typeURL, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(before, name) }), gone)
	}
	if s.up != nil {
		return s.extensions.whole(f, &q)
	}
	if local {
		w.taken(s, typeURL, nonce, q.GetErrorDetail())
	}
	w.mu.Lock()
	skip := w.sent[typeURL] || q.GetVersionInfo() != "" && nonce == "" // Envoy has it
	w.sent[typeURL] = true
	w.mu.Unlock()
	if skip {
		return nil, nil
	}
	return nil, w.replay(s, typeURL, names, nil)
}

// taken handles Envoy's acknowledgement or refusal of an answer of the relay. If Envoy refuses a part, the relay sends the rest again.
func (w *wholeState) taken(s *session, typeURL, nonce string, refusal *rpcstatus.Status) {
	w.mu.Lock()
	given := w.given[nonce]
	delete(w.given, nonce)
	w.mu.Unlock()
	if refusal == nil {
		s.store.Restore(typeURL, given...)
		return
	}
	rest := s.setAside(typeURL, refusal.GetMessage(), given)
	s.retries.next()
	if len(rest) > 0 {
		w.mu.Lock()
		delete(w.sent, typeURL)
		w.mu.Unlock()
	}
}

// offer implements dialect.
func (w *wholeState) offer(s *session) error {
	for _, typeURL := range keptTypes() {
		w.mu.Lock()
		names, asked := w.names[typeURL]
		w.mu.Unlock()
		if aside := s.store.Refused(typeURL); asked && len(aside) > 0 {
			if err := w.replay(s, typeURL, names, aside); err != nil {
				return err
			}
		}
	}
	return nil
}

// replay answers Envoy's request from the store, and adds the resources of aside.
func (w *wholeState) replay(s *session, typeURL string, names []string, aside []*discoveryv3.Resource) error {
	all := typeURL == clusterURL || typeURL == listenerURL
	list, missing := s.store.Named(typeURL, names)
	if all {
		list, missing = s.store.All(typeURL), nil
	}
	if all && len(list) == 0 {
		aside = s.store.Refused(typeURL) // an Envoy without any of them would be ready
	}
	list = s.extensions.usable(typeURL, slices.Concat(list, aside))
	answer := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: "last-known-good", Nonce: s.nonce()}
	given := make([]string, 0, len(list))
	for _, r := range list {
		answer.Resources = append(answer.Resources, r.GetResource())
		given = append(given, r.GetName())
	}
	if typeURL == assignmentURL {
		for _, name := range missing { // Envoy would wait for the endpoints of a cluster
			none, err := anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: name})
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, none)
		}
	}
	if len(answer.GetResources()) == 0 && !all {
		return nil
	}
	w.mu.Lock()
	w.given[answer.GetNonce()] = given
	w.mu.Unlock()
	return s.answer(answer)
}

// update implements dialect.
func (*wholeState) update(data []byte) *update {
	var a discoveryv3.DiscoveryResponse
	if !readable(data, &a) {
		return nil
	}
	u := &update{nonce: a.GetNonce(), version: a.GetVersionInfo(), whole: true}
	for _, body := range a.GetResources() {
		u.resources = append(u.resources, &discoveryv3.Resource{Name: nameOf(body.GetValue()), Version: u.version, Resource: body})
	}
	return u
}

// message implements dialect. The version shows if a resource differs from the control plane's, such as a stand-in filter.
func (*wholeState) message(u *update) proto.Message {
	a := &discoveryv3.DiscoveryResponse{TypeUrl: extension.URL, VersionInfo: u.version, Nonce: u.nonce}
	for _, r := range u.resources {
		a.Resources = append(a.Resources, r.GetResource())
		if r.GetVersion() != u.version {
			a.VersionInfo = u.version + unfetched
		}
	}
	return a
}

// own implements dialect.
func (*wholeState) own(q question) proto.Message {
	return &discoveryv3.DiscoveryRequest{TypeUrl: q.typeURL, ResourceNames: q.names, ResponseNonce: q.nonce, VersionInfo: q.version, ErrorDetail: q.failure}
}

// response implements dialect.
func (w *wholeState) response(s *session, data []byte) (response, bool) {
	var a discoveryv3.DiscoveryResponse
	if !readable(data, &a) || !kept(a.GetTypeUrl()) {
		return response{}, false
	}
	var list []*discoveryv3.Resource
	var names []string
	for _, body := range a.GetResources() {
		if name := nameOf(body.GetValue()); name != "" {
			list = append(list, &discoveryv3.Resource{Name: name, Resource: body})
			names = append(names, name)
		}
	}
	return response{typeURL: a.GetTypeUrl(), nonce: a.GetNonce(), names: names, accept: func() {
		if a.GetTypeUrl() == clusterURL || a.GetTypeUrl() == listenerURL {
			s.store.Replace(a.GetTypeUrl(), list)
		} else {
			s.store.Accept(a.GetTypeUrl(), list, nil)
		}
	}}, true
}

// nameOf returns the name of a resource without reading more of it. It is the first field of all types that are kept.
func nameOf(body []byte) string { return textField(body, 1) }
