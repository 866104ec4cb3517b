package relay

import (
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/pilotmesh/pilot/internal/agent/extension"
)

const (
	clusterURL    = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listenerURL   = "type.googleapis.com/envoy.config.listener.v3.Listener"
	assignmentURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// wholeState is the dialect of State-of-the-World xDS.
type wholeState struct {
	// names are what Envoy asks for, by type. sent are the types that the relay has answered from the store for these names.
	names map[string][]string
	sent  map[string]bool
}

// request implements dialect.
func (w *wholeState) request(s *session, f *frame) (*frame, error) {
	var q discoveryv3.DiscoveryRequest
	if !readable(f.data.Materialize(), &q) || !kept(q.GetTypeUrl()) {
		return f, nil
	}
	typeURL, names := q.GetTypeUrl(), q.GetResourceNames()
	if nonce := q.GetResponseNonce(); nonce != "" && !strings.HasPrefix(nonce, localNonce) {
		if err := s.acknowledged(q.GetTypeUrl(), nonce, q.GetErrorDetail() != nil); err != nil {
			return nil, err
		}
	}
	all := typeURL == clusterURL || typeURL == listenerURL
	if before, ok := w.names[typeURL]; !ok || !slices.Equal(before, names) {
		w.names[typeURL] = slices.Clone(names)
		delete(w.sent, typeURL)
		if !all {
			s.store.Keep(typeURL, names)
		}
	}
	if s.up != nil {
		return s.extensions.whole(f, &q)
	}
	if q.GetErrorDetail() != nil {
		s.discard(typeURL, q.GetErrorDetail().GetMessage(), nil) // which of them it refuses is not known
	}
	if w.sent[typeURL] || q.GetVersionInfo() != "" && q.GetResponseNonce() == "" {
		return nil, nil // Envoy has it
	}
	w.sent[typeURL] = true
	return nil, w.replay(s, typeURL, names, all)
}

// replay gives Envoy what it asks for from the store.
func (w *wholeState) replay(s *session, typeURL string, names []string, all bool) error {
	list, missing := s.store.Named(typeURL, names)
	if all {
		list, missing = s.store.All(typeURL), nil
	}
	list = s.extensions.usable(typeURL, list)
	answer := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: "last-known-good", Nonce: s.nonce()}
	for _, r := range list {
		answer.Resources = append(answer.Resources, r.GetResource())
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

// message implements dialect. A client that was given something else than the control plane wants has another version.
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
	return response{a.GetTypeUrl(), a.GetNonce(), func() {
		var list []*discoveryv3.Resource
		var names []string
		for _, body := range a.GetResources() {
			if name := nameOf(body.GetValue()); name != "" {
				list = append(list, &discoveryv3.Resource{Name: name, Resource: body})
				names = append(names, name)
			}
		}
		s.store.Accept(a.GetTypeUrl(), list, nil)
		if a.GetTypeUrl() == clusterURL || a.GetTypeUrl() == listenerURL {
			s.store.Keep(a.GetTypeUrl(), names)
		}
	}}, true
}

// nameOf returns the name of a resource without reading more of it. It is the first field of all types that are kept.
func nameOf(body []byte) string { return textField(body, 1) }
