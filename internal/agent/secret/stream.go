package secret

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

// core implements the protocol of one stream as a state machine without time and network: requests go in, responses come out.
//
// Responses depend on the versions sent before, not on acknowledgements. Secrets do not refer to each other, so they need no
// order, and a rejected version is not sent again unless it changes.
type core struct {
	subscriptions map[string]string // by name: the version that was sent last, or none, or absent
	nonce         uint64
	last          []string // the names in the last response, which is the only one that can be acknowledged
	good          bool     // the last response contained secrets; otherwise it refused some
}

// Values of core.subscriptions that are not versions: nothing was sent yet, or the secret was refused.
const (
	none   = ""
	absent = "-"
)

func newCore() *core { return &core{subscriptions: map[string]string{}} }

// rejection is a client's rejection of a secret that it was sent.
type rejection struct{ name, version, reason string }

// change is the effect of a request on the board.
type change struct {
	more, less []string
	rejected   []rejection
}

// state processes a request of the State-of-the-World variant, which lists all names that the client wants.
func (c *core) state(r *discoveryv3.DiscoveryRequest) change {
	var ch change
	if nonce := r.GetResponseNonce(); nonce != "" {
		if nonce != c.id() {
			return ch // it answers an older response; only the answer to the last one counts
		}
		ch.rejected = c.rejections(r.GetErrorDetail())
	}
	wanted := map[string]bool{}
	for _, name := range r.GetResourceNames() {
		wanted[name] = true
	}
	for name := range c.subscriptions {
		if !wanted[name] {
			ch.less = append(ch.less, name)
		}
	}
	for name := range wanted {
		if _, known := c.subscriptions[name]; !known {
			ch.more = append(ch.more, name)
		}
	}
	return c.apply(ch)
}

// delta processes a request of the delta variant, which lists the names that are subscribed and unsubscribed.
func (c *core) delta(r *discoveryv3.DeltaDiscoveryRequest) change {
	var ch change
	if nonce := r.GetResponseNonce(); nonce != "" && nonce == c.id() {
		ch.rejected = c.rejections(r.GetErrorDetail())
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		if _, known := c.subscriptions[name]; known && !slices.Contains(ch.less, name) {
			ch.less = append(ch.less, name)
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		_, known := c.subscriptions[name]
		switch i := slices.Index(ch.less, name); {
		case i >= 0: // unsubscribed and subscribed in one request: the client wants it and gets it again
			ch.less = slices.Delete(ch.less, i, i+1)
			c.subscriptions[name] = none
		case known:
			c.subscriptions[name] = none // the client may have lost it
		case !slices.Contains(ch.more, name):
			ch.more = append(ch.more, name)
		}
	}
	ch = c.apply(ch)
	for name, version := range r.GetInitialResourceVersions() {
		if _, known := c.subscriptions[name]; known && c.nonce == 0 {
			c.subscriptions[name] = version
		}
	}
	return ch
}

func (c *core) apply(ch change) change {
	slices.Sort(ch.more)
	slices.Sort(ch.less)
	for _, name := range ch.more {
		c.subscriptions[name] = none
	}
	for _, name := range ch.less {
		delete(c.subscriptions, name)
	}
	return ch
}

// rejections returns the rejections in an answer to the last response. The rejection of a refusal is expected, so it is omitted.
func (c *core) rejections(detail *rpcstatus.Status) []rejection {
	if detail == nil || !c.good {
		return nil
	}
	var list []rejection
	for _, name := range c.last {
		if version, known := c.subscriptions[name]; known {
			list = append(list, rejection{name, version, detail.GetMessage()})
		}
	}
	return list
}

// due returns the secrets to be sent: have are secrets of a version that the client does not have, and refused the secrets to be refused.
func (c *core) due(entries map[string]Entry) (have, lack []Entry) {
	for _, name := range slices.Sorted(maps.Keys(c.subscriptions)) {
		e, known := entries[name]
		sent := c.subscriptions[name]
		switch {
		case !known || e.State == StateWaiting:
		case e.Good() && e.version != sent:
			have = append(have, e)
		case !e.Good() && sent == none:
			lack = append(lack, e)
		}
	}
	return have, lack
}

// recordSent records a response that is about to be sent, and returns its nonce.
func (c *core) recordSent(list []Entry, good bool) string {
	c.nonce++
	c.last, c.good = nil, good
	for _, e := range list {
		c.last = append(c.last, e.Name)
		c.subscriptions[e.Name] = absent
		if good {
			c.subscriptions[e.Name] = e.version
		}
	}
	return c.id()
}

func (c *core) id() string { return strconv.FormatUint(c.nonce, 10) }

// states returns the responses to be sent in the State-of-the-World variant.
//
// This variant has no way to say that a resource does not exist; a client waits until its own timeout (xds_protocol.rst, Knowing
// When a Requested Resource Does Not Exist). A secret that does not exist is therefore answered by a resource of another type,
// which contains the reason. A client must reject that; Envoy then stops waiting and fails connections. An empty Secret would
// have the opposite effect: Envoy would use it as a validation context that accepts every certificate.
func (c *core) states(entries map[string]Entry) []*discoveryv3.DiscoveryResponse {
	var list []*discoveryv3.DiscoveryResponse
	have, lack := c.due(entries)
	if len(have) > 0 {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: c.recordSent(have, true), VersionInfo: versions(have)}
		for _, e := range have {
			r.Resources = append(r.Resources, e.resource)
		}
		list = append(list, r)
	}
	if len(lack) > 0 {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: c.recordSent(lack, false), VersionInfo: absent}
		for _, e := range lack {
			r.Resources = append(r.Resources, refusal(e))
		}
		list = append(list, r)
	}
	return list
}

// refusal returns a resource that a client must reject, with the reason for its log.
func refusal(e Entry) *anypb.Any {
	a, err := anypb.New(&rpcstatus.Status{Code: int32(codes.NotFound), Message: e.Name + ": " + e.Problem})
	if err != nil { // names come through the codec and are valid UTF-8; an empty message is refused too
		return &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.Status"}
	}
	return a
}

func versions(list []Entry) string {
	var all []string
	for _, e := range list {
		all = append(all, e.version)
	}
	return strings.Join(all, ",")
}

// deltas returns the response to be sent in the delta variant, or nil if there is none. A secret that does not exist is listed
// as removed: Envoy then stops waiting. It keeps a secret that it has, and fails connections if it has none.
func (c *core) deltas(entries map[string]Entry) *discoveryv3.DeltaDiscoveryResponse {
	have, lack := c.due(entries)
	if len(have) == 0 && len(lack) == 0 {
		return nil
	}
	for _, e := range lack {
		c.subscriptions[e.Name] = absent
	}
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: c.recordSent(have, true), SystemVersionInfo: versions(have)}
	for _, e := range have {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: e.Name, Version: e.version, Resource: e.resource})
	}
	for _, e := range lack {
		r.RemovedResources = append(r.RemovedResources, e.Name)
	}
	return r
}
