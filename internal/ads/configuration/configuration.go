// Package configuration is the conversation with a client that reads objects of configuration (MCP over xDS) in place of the resources of a proxy.
//
// It owns when such a client is sent what, in both variants of the protocol. The kinds are independent of each other. A client that has not answered
// the last response of a kind is sent no further one of it: changes gather, and the next response has all of them. A client that refuses a
// response keeps its resources, and is sent the next change.
//
// The package is a pure state machine. It starts no goroutines.
package configuration

import (
	"encoding/hex"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Map is a set of resources by name.
type Map = omap.Map[omap.Name, *resource.Resource]

// maxTypes is how many types a client may ask for, and maxMessage the size of a delta response in bytes above which it is divided.
const (
	maxTypes   = 200
	maxMessage = 1 << 20
)

// Conversation is the state of a stream. It is for one goroutine at a time.
type Conversation struct {
	variant      request.Variant
	controlPlane string
	types        map[string]*subscription
	order        []string
	nonce        uint64
}

// subscription is what a client has of a type.
type subscription struct {
	// owed is true until the first request of the type is answered.
	owed bool
	// nonce is the nonce of the last response; empty before. waiting is true until the client answers it.
	nonce   string
	waiting bool
	// has is what the client has been sent. claimed are the names that it had before, with their versions.
	has     Map
	claimed map[string]string
}

// New returns the conversation of a new stream. controlPlane is the identifier in responses; empty for none.
func New(v request.Variant, controlPlane string) *Conversation {
	return &Conversation{variant: v, controlPlane: controlPlane, types: map[string]*subscription{}}
}

// Ask takes a request. refused is why the client rejects the response that it answers; empty if it does not. tooMany is true if the client asks for too
// many types, so that the stream must end.
func (c *Conversation) Ask(q *request.Request) (refused string, tooMany bool) {
	url := string(q.URL)
	s := c.types[url]
	if s == nil {
		if len(c.order) == maxTypes {
			return "", true
		}
		s = &subscription{owed: true, claimed: map[string]string{}}
		c.types[url] = s
		c.order = append(c.order, url)
		for name, version := range q.Initial() {
			s.claimed[string(name)] = string(version)
		}
		return "", false // the nonce of a first request is of another stream
	}
	if string(q.Nonce) != s.nonce {
		return "", false
	}
	s.waiting = false
	if q.Rejected {
		const limit = 1 << 10
		return request.StatusText(q.Detail, limit), false
	}
	return "", false
}

// Next returns the encoded responses that can be sent. content returns the resources that the client is to have of a type; false if they are not known
// yet.
func (c *Conversation) Next(content func(url string) (Map, bool)) (responses [][][]byte) {
	for _, url := range c.order {
		s := c.types[url]
		now, known := content(url)
		if s.waiting || !known || !s.owed && now.Same(s.has) {
			continue
		}
		if c.variant == request.Delta {
			responses = append(responses, c.delta(url, s, now)...)
		} else if s.owed || now.Hash() != s.has.Hash() {
			responses = append(responses, c.whole(url, s, now))
		}
		s.has, s.owed, s.claimed = now, false, nil
	}
	return responses
}

// Field numbers of DiscoveryResponse and DeltaDiscoveryResponse. The resources are framed already.
const (
	fieldVersion           = 1
	fieldURL               = 4
	fieldNonce             = 5
	fieldRemoved           = 6 // delta
	fieldControlPlane      = 6 // State-of-the-World
	fieldDeltaControlPlane = 7
	fieldIdentifier        = 1 // of ControlPlane
)

// start begins a response.
func (c *Conversation) start(url string, s *subscription, now Map) []byte {
	c.nonce++
	s.nonce, s.waiting = strconv.FormatUint(c.nonce, 10)+"m", true
	hash := now.Hash()
	b := appendText(nil, fieldVersion, hex.EncodeToString(hash[:]))
	b = appendText(appendText(b, fieldURL, url), fieldNonce, s.nonce)
	if c.controlPlane == "" {
		return b
	}
	field := protowire.Number(fieldControlPlane)
	if c.variant == request.Delta {
		field = fieldDeltaControlPlane
	}
	return appendText(b, field, string(appendText(nil, fieldIdentifier, c.controlPlane)))
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// whole returns a response with all resources.
func (c *Conversation) whole(url string, s *subscription, now Map) [][]byte {
	parts := [][]byte{c.start(url, s, now)}
	for _, r := range now.All() {
		parts = r.AppendSotW(parts)
	}
	return parts
}

// delta returns the responses with what differs from what the client has: at least one if it is owed one, and several if they would be large.
func (c *Conversation) delta(url string, s *subscription, now Map) (responses [][][]byte) {
	var parts [][]byte
	size := 0
	add := func(n int, fill func()) {
		if parts != nil && size+n > maxMessage {
			responses, parts, size = append(responses, parts), nil, 0
		}
		if parts == nil {
			parts = [][]byte{c.start(url, s, now)}
		}
		size += n
		fill()
	}
	if s.owed {
		add(0, func() {})
	}
	for ch := range omap.Diff(s.has, now) {
		name := string(ch.Key)
		version, claimed := s.claimed[name]
		switch {
		case ch.HasNew && claimed && ch.New.IsVersion([]byte(version)), ch.HasNew && ch.HadOld && ch.New.ContentHash() == ch.Old.ContentHash():
		case ch.HasNew:
			add(ch.New.Size(), func() { parts = ch.New.AppendDelta(parts) })
		default:
			add(len(name), func() { parts = append(parts, appendText(nil, fieldRemoved, name)) })
		}
	}
	for name := range s.claimed {
		if !now.Has(omap.Name(name)) {
			add(len(name), func() { parts = append(parts, appendText(nil, fieldRemoved, name)) })
		}
	}
	if parts != nil {
		responses = append(responses, parts)
	}
	return responses
}
