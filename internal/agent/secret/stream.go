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

// core is the protocol of one stream as a state machine: requests go in, responses come out, and it knows neither time
// nor network.
//
// What is sent depends on what the client was sent, by its nonce, not on what it has acknowledged: each secret stands
// alone, so no order has to be kept between them, and what was rejected is not sent again unless it changes.
type core struct {
	asked map[string]string // by name: the version that was sent last, none, or absent
	nonce uint64
	last  []string // what the response with that nonce was about: only it can be acknowledged
	good  bool     // that response gave secrets; otherwise it refused some
}

// What a client was told of a secret that is not a version: nothing so far, or that it cannot be had.
const (
	none   = ""
	absent = "-"
)

func newCore() *core { return &core{asked: map[string]string{}} }

// rejection is what a client said of a secret it was sent.
type rejection struct{ name, version, reason string }

// change is what a request means for the board.
type change struct {
	more, less []string
	rejected   []rejection
}

// state takes a request of the State-of-the-World variant. It names all that the client wants.
func (c *core) state(r *discoveryv3.DiscoveryRequest) change {
	var ch change
	if nonce := r.GetResponseNonce(); nonce != "" {
		if nonce != c.id() {
			return ch // it answers an older response; the answer to the last one says what counts
		}
		ch.rejected = c.judged(r.GetErrorDetail())
	}
	wanted := map[string]bool{}
	for _, name := range r.GetResourceNames() {
		wanted[name] = true
	}
	for name := range c.asked {
		if !wanted[name] {
			ch.less = append(ch.less, name)
		}
	}
	for name := range wanted {
		if _, known := c.asked[name]; !known {
			ch.more = append(ch.more, name)
		}
	}
	return c.apply(ch)
}

// delta takes a request of the delta variant. It names what the client wants more and less than before.
func (c *core) delta(r *discoveryv3.DeltaDiscoveryRequest) change {
	var ch change
	if nonce := r.GetResponseNonce(); nonce != "" && nonce == c.id() {
		ch.rejected = c.judged(r.GetErrorDetail())
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		if _, known := c.asked[name]; known && !slices.Contains(ch.less, name) {
			ch.less = append(ch.less, name)
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		_, known := c.asked[name]
		switch i := slices.Index(ch.less, name); {
		case i >= 0: // dropped and wanted at once: wanted, and sent again
			ch.less = slices.Delete(ch.less, i, i+1)
			c.asked[name] = none
		case known:
			c.asked[name] = none // it may have forgotten it
		case !slices.Contains(ch.more, name):
			ch.more = append(ch.more, name)
		}
	}
	ch = c.apply(ch)
	for name, version := range r.GetInitialResourceVersions() {
		if _, known := c.asked[name]; known && c.nonce == 0 {
			c.asked[name] = version
		}
	}
	return ch
}

func (c *core) apply(ch change) change {
	slices.Sort(ch.more)
	slices.Sort(ch.less)
	for _, name := range ch.more {
		c.asked[name] = none
	}
	for _, name := range ch.less {
		delete(c.asked, name)
	}
	return ch
}

// judged is what an answer to the last response says. That a refusal is rejected is what it is for.
func (c *core) judged(detail *rpcstatus.Status) []rejection {
	if detail == nil || !c.good {
		return nil
	}
	var list []rejection
	for _, name := range c.last {
		if version, known := c.asked[name]; known {
			list = append(list, rejection{name, version, detail.GetMessage()})
		}
	}
	return list
}

// owed is what the client is to be told: secrets that are new to it, and those that cannot be had.
func (c *core) owed(entries map[string]Entry) (have, lack []Entry) {
	for _, name := range slices.Sorted(maps.Keys(c.asked)) {
		e, known := entries[name]
		sent := c.asked[name]
		switch {
		case !known || e.State == Waiting:
		case e.Good() && e.version != sent:
			have = append(have, e)
		case !e.Good() && sent == none:
			lack = append(lack, e)
		}
	}
	return have, lack
}

// note remembers a response that is about to be sent.
func (c *core) note(list []Entry, good bool) string {
	c.nonce++
	c.last, c.good = nil, good
	for _, e := range list {
		c.last = append(c.last, e.Name)
		c.asked[e.Name] = absent
		if good {
			c.asked[e.Name] = e.version
		}
	}
	return c.id()
}

func (c *core) id() string { return strconv.FormatUint(c.nonce, 10) }

// states are the responses that are due, in the State-of-the-World variant.
//
// It has no way to say that a resource does not exist: a client waits until its own time is up (xds_protocol.rst,
// Knowing When a Requested Resource Does Not Exist). So a secret that cannot be had is answered by a resource of another
// type, which tells why. A client must reject that, and Envoy then stops waiting and fails connections. An empty Secret
// would do the opposite: Envoy takes it for roots that vouch for everybody.
func (c *core) states(entries map[string]Entry) []*discoveryv3.DiscoveryResponse {
	var list []*discoveryv3.DiscoveryResponse
	have, lack := c.owed(entries)
	if len(have) > 0 {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: c.note(have, true), VersionInfo: versions(have)}
		for _, e := range have {
			r.Resources = append(r.Resources, e.resource)
		}
		list = append(list, r)
	}
	if len(lack) > 0 {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: c.note(lack, false), VersionInfo: absent}
		for _, e := range lack {
			r.Resources = append(r.Resources, refusal(e))
		}
		list = append(list, r)
	}
	return list
}

// refusal is what a client must reject, with the reason for its log.
func refusal(e Entry) *anypb.Any {
	a, err := anypb.New(&rpcstatus.Status{Code: int32(codes.NotFound), Message: e.Name + ": " + e.Problem})
	if err != nil { // a name that is no UTF-8 cannot have come through the codec; without text it is a refusal too
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

// deltas is the response that is due in the delta variant, nil if none is. A name that cannot be had is removed: Envoy
// stops waiting then, keeps a secret it has, and without one fails connections.
func (c *core) deltas(entries map[string]Entry) *discoveryv3.DeltaDiscoveryResponse {
	have, lack := c.owed(entries)
	if len(have) == 0 && len(lack) == 0 {
		return nil
	}
	for _, e := range lack {
		c.asked[e.Name] = absent
	}
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: c.note(have, true), SystemVersionInfo: versions(have)}
	for _, e := range have {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: e.Name, Version: e.version, Resource: e.resource})
	}
	for _, e := range lack {
		r.RemovedResources = append(r.RemovedResources, e.Name)
	}
	return r
}
