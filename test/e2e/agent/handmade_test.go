package agent

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// handmade is a control plane whose resources a test writes itself, for what Pilot's does not translate.
type handmade struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	address string
	server  *grpc.Server

	mu        sync.Mutex
	version   int
	resources map[string][]*discoveryv3.Resource // by type
	changed   chan struct{}                      // closed when they change
	refused   []string                           // why something was refused
}

func newHandmade(t *testing.T) *handmade {
	t.Helper()
	h := &handmade{t: t, address: "127.0.0.1:0", resources: map[string][]*discoveryv3.Resource{}, changed: make(chan struct{})}
	h.start()
	return h
}

// start serves, always at the same address.
func (h *handmade) start() {
	h.t.Helper()
	l, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.address = l.Addr().String()
	h.server = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(h.server, h)
	server := h.server
	go func() { _ = server.Serve(l) }() // ends by Stop
	h.t.Cleanup(server.Stop)
}

// set replaces the resource of a type, from its JSON, which has the type.
func (h *handmade) set(typeURL, name, text string) {
	h.t.Helper()
	body := &anypb.Any{}
	if err := protojson.Unmarshal([]byte(text), body); err != nil {
		h.t.Fatal(err)
	}
	h.put(typeURL, name, body)
}

// put replaces the resource of a type.
func (h *handmade) put(typeURL, name string, body *anypb.Any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	h.resources[typeURL] = []*discoveryv3.Resource{{Name: name, Version: strconv.Itoa(h.version), Resource: body}}
	close(h.changed)
	h.changed = make(chan struct{})
}

// state is the resources of a type, and a channel that is closed when that changes.
func (h *handmade) state(typeURL string) ([]*discoveryv3.Resource, int, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resources[typeURL], h.version, h.changed
}

// refuses notes why a response was refused, and saysWhy reports whether one was for a reason.
func (h *handmade) refuses(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, why)
}

func (h *handmade) saysWhy(part string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.refused, func(why string) bool { return strings.Contains(why, part) })
}

// DeltaAggregatedResources implements delta xDS.
func (h *handmade) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := received(s.Context().Done(), s.Recv)
	has := map[string]map[string]string{} // versions by types and names
	for {
		_, _, changed := h.state("")
		for typeURL, versions := range has {
			list, version, _ := h.state(typeURL)
			a := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: strconv.Itoa(version)}
			for _, r := range list {
				if versions[r.GetName()] != r.GetVersion() {
					versions[r.GetName()] = r.GetVersion()
					a.Resources = append(a.Resources, r)
				}
			}
			if _, asked := versions[""]; asked && len(a.GetResources()) == 0 {
				continue
			}
			versions[""] = "" // Envoy waits for the first response of a type, also if nothing is in it
			if err := s.Send(a); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case q, ok := <-requests:
			if !ok {
				return nil
			}
			if d := q.GetErrorDetail(); d != nil {
				h.refuses(d.GetMessage())
			}
			if has[q.GetTypeUrl()] == nil {
				has[q.GetTypeUrl()] = map[string]string{}
				for name, version := range q.GetInitialResourceVersions() {
					has[q.GetTypeUrl()][name] = version
				}
			}
		}
	}
}

// StreamAggregatedResources implements State-of-the-World xDS.
func (h *handmade) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	requests := received(s.Context().Done(), s.Recv)
	sent := map[string]string{}
	for {
		_, _, changed := h.state("")
		for typeURL, had := range sent {
			list, _, _ := h.state(typeURL)
			a := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: "none"}
			for _, r := range list {
				a.VersionInfo = r.GetVersion()
				a.Resources = append(a.Resources, r.GetResource())
			}
			if a.Nonce = a.GetVersionInfo(); a.GetVersionInfo() == had {
				continue
			}
			sent[typeURL] = a.GetVersionInfo()
			if err := s.Send(a); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case q, ok := <-requests:
			if !ok {
				return nil
			}
			if d := q.GetErrorDetail(); d != nil {
				h.refuses(d.GetMessage())
			}
			if _, ok := sent[q.GetTypeUrl()]; !ok {
				sent[q.GetTypeUrl()] = ""
			}
		}
	}
}

// received delivers what a stream receives, until it ends.
func received[Q any](done <-chan struct{}, receive func() (Q, error)) <-chan Q {
	requests := make(chan Q)
	go func() {
		defer close(requests)
		for {
			q, err := receive()
			if err != nil {
				return
			}
			select {
			case requests <- q:
			case <-done:
				return
			}
		}
	}()
	return requests
}
