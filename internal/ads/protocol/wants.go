package protocol

import (
	"encoding/hex"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxWants is the largest number of names of one such type that a stream may ask for.
	maxWants = 16384
	// maxWantName is the largest length of such a name, in bytes.
	maxWantName = 1024
	// maxUnanswered is the largest number of unacknowledged responses of such a type that the core remembers. It forgets
	// the oldest first.
	maxUnanswered = 16
)

// Answer is the mesh's answer to a name that a stream asked for.
type Answer struct {
	Type resource.Type
	Name string
	// Resource is nil if there is none, or if this client may not have it.
	Resource *resource.Resource
}

// wants holds the types that are answered per proxy, and virtual hosts on demand. A client asks for names, the core passes them on with Want actions, and
// sends the answers as they arrive. Streams share nothing of this: no message, no subscription, no state.
type wants struct {
	types [resource.VirtualHost - resource.Types + 1]wantedType
}

// wantedType is the progress of a stream in one of these types.
type wantedType struct {
	// names is nil until the client asks for the type.
	names map[string]*want
	// queue lists the names whose answers must be sent, in the order in which the answers arrived. A name is in it once, but
	// may have been dropped since.
	queue []string
	// nonce is the number of the last response; 0 before the first one.
	nonce uint64
	// inFlight are the responses that the client has not answered, the oldest first, at most maxUnanswered.
	inFlight []wantedResponse
	// reason is the text of the last NACK; empty after an ACK.
	reason string
	// refused counts the demands for virtual hosts for which there was no room.
	refused int
}

// want is one name that the client asks for.
type want struct {
	// answered is set when the mesh has answered. answer is nil if there is no resource for this client.
	answered bool
	answer   *resource.Resource
	// queued is set while the name is in wantedType.queue.
	queued bool
	// sent is set when the client was sent the content with the hash sentContent; that is zero if it was sent that there is none.
	sent        bool
	sentContent omap.Hash
	// initialVersion is the version that the client said it has, until the mesh has answered.
	initialVersion string
	// alone is set if the answer must be the only one in its response.
	alone bool
	// rejected is set if the client rejected the answer that it was sent last.
	rejected bool
}

// wantedResponse is a response that the client has not answered.
type wantedResponse struct {
	nonce uint64
	names []string
}

// want processes a request for a type that is answered per proxy.
func (c *Core) want(t resource.Type, q *Request, out []Action) []Action {
	w := c.wantedType(t)
	out, stale := w.ackOrNack(t, q, out)
	if stale && q.Variant == StateOfTheWorld {
		return out // The client sends its subscription again when it has read the latest response.
	}
	asked, long := wantedNames(q, w.names == nil)
	if w.names == nil {
		w.names = map[string]*want{}
	}
	added, dropped := w.add(asked, q.Variant), w.drop(asked, q)
	if long || len(w.names) > maxWants {
		return c.close(TooMuch, "more names asked for than one stream may have, or longer ones", out)
	}
	if len(added)+len(dropped) == 0 {
		return out
	}
	return append(out, Action{Kind: Want, Type: t, Names: added, Dropped: dropped})
}

// wantedType is the progress in a type.
func (c *Core) wantedType(t resource.Type) *wantedType {
	if c.wants == nil {
		c.wants = &wants{}
	}
	return &c.wants.types[t-resource.Types]
}

// wantedNames are the names that a request asks for, each with the version that the client has of it. A client is subscribed
// to the resources that it has, even if it does not list their names. The types have no wildcard, so a star is ignored. long says that a
// name is too long.
func wantedNames(q *Request, first bool) (asked map[string]string, long bool) {
	asked = make(map[string]string, q.Subscribes)
	for name := range q.Subscribed() {
		if long = long || len(name) > maxWantName; !long && string(name) != subscribe.Star {
			asked[string(name)] = ""
		}
	}
	if !first {
		return asked, long
	}
	for name, version := range q.Initial() {
		if long = long || len(name) > maxWantName; !long {
			asked[string(name)] = string(version)
		}
	}
	return asked, long
}

// add adds names to the subscription and returns the new ones. A delta client that asks again for a name may have dropped the
// resource, so it is sent again.
func (w *wantedType) add(asked map[string]string, v Variant) (added []string) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		n := w.names[name]
		switch {
		case n == nil:
			w.names[name] = &want{initialVersion: asked[name]}
			added = append(added, name)
		case v == Delta:
			n.sent = false
			w.enqueue(name, n)
		}
	}
	return added
}

// drop removes names from the subscription and returns them. In State-of-the-World these are the names that the request
// does not list.
func (w *wantedType) drop(asked map[string]string, q *Request) (dropped []string) {
	if q.Variant == StateOfTheWorld {
		for name := range w.names {
			if _, ok := asked[name]; !ok {
				dropped = append(dropped, name)
			}
		}
	}
	for name := range q.Dropped() {
		if w.names[string(name)] != nil {
			dropped = append(dropped, string(name))
		}
	}
	for _, name := range dropped {
		delete(w.names, name)
	}
	slices.Sort(dropped)
	return slices.Compact(dropped)
}

// ackOrNack processes the request as an ACK or NACK if it is one. It also acknowledges all responses before it.
func (w *wantedType) ackOrNack(t resource.Type, q *Request, out []Action) (_ []Action, stale bool) {
	if len(q.Nonce) == 0 || w.nonce == 0 {
		return out, false
	}
	n := parseNonce(q.Nonce, t)
	i := slices.IndexFunc(w.inFlight, func(r wantedResponse) bool { return r.nonce == n })
	stale = n != w.nonce
	switch {
	case i >= 0 && q.Rejected:
		w.reason = request.StatusText(q.Detail, maxText)
		out = append(out, Action{Kind: Rejected, Type: t, Text: w.reason, Names: w.setRejected(w.inFlight[i].names, true)})
	case i >= 0:
		w.reason = ""
		var accepted []string
		for _, r := range w.inFlight[:i+1] {
			accepted = append(accepted, w.setRejected(r.names, false)...)
		}
		if len(accepted) > 0 {
			out = append(out, Action{Kind: Recovered, Type: t, Names: accepted})
		}
	case stale:
		return append(out, Action{Kind: Expired, Type: t}), true
	}
	w.inFlight = w.inFlight[i+1:]
	return out, stale
}

// setRejected notes whether the client rejected the answers to names. It returns the names that must be reported: all after a
// NACK, and after an ACK the names that were rejected before.
func (w *wantedType) setRejected(names []string, rejected bool) (report []string) {
	for _, name := range names {
		if n := w.names[name]; n != nil && (rejected || n.rejected) {
			n.rejected = rejected
			report = append(report, name)
		}
	}
	return report
}

// addAnswers stores answers of the mesh. It ignores those to names that the client no longer asks for.
func (w *wants) addAnswers(answers []Answer) {
	if w == nil {
		return
	}
	for _, a := range answers {
		t := &w.types[a.Type-resource.Types]
		if n := t.names[a.Name]; n != nil {
			n.answer, n.answered = a.Resource, true
			t.enqueue(a.Name, n)
		}
	}
}

// enqueue queues a name if the client does not have the answer to it.
func (w *wantedType) enqueue(name string, n *want) {
	if !n.answered {
		return
	}
	if n.answer != nil && n.answer.Version() == n.initialVersion {
		n.sent, n.sentContent = true, n.content()
	}
	n.initialVersion = ""
	if !n.queued && !n.upToDate() {
		n.queued = true
		w.queue = append(w.queue, name)
	}
}

// upToDate reports whether the client was sent the present answer.
func (n *want) upToDate() bool { return n.sent && n.sentContent == n.content() }

// content is the hash of the answer; zero if there is none.
func (n *want) content() omap.Hash {
	if n.answer == nil {
		return omap.Hash{}
	}
	return n.answer.ContentHash()
}

// message makes the next response of these types; nil if nothing is queued. ready says which virtual hosts may be sent.
func (w *wants) message(v Variant, controlPlane string, ready func(*resource.Resource) bool) (*response.Message, resource.Type) {
	if w == nil {
		return nil, 0
	}
	for i := range w.types {
		t := resource.Types + resource.Type(i)
		if m := w.types[i].next(&response.Writer{Variant: v, Type: t, ControlPlane: controlPlane}, ready); m != nil {
			return m, t
		}
	}
	return nil, 0
}

// next makes a response of queued answers, up to about response.MaxSize bytes; nil if none is queued. Only the delta variant can say
// that a resource does not exist.
func (w *wantedType) next(to *response.Writer, ready func(*resource.Resource) bool) *response.Message {
	var put []*resource.Resource
	var removed, absent, held []string
	for size := 0; len(w.queue) > 0 && size < response.MaxSize; {
		name := w.queue[0]
		w.queue = w.queue[1:]
		n := w.names[name]
		if n == nil || !n.queued {
			continue // The client dropped the name after it was queued.
		}
		if n.queued = false; n.upToDate() {
			continue
		}
		if waits := to.Type == resource.VirtualHost && n.answer != nil && !ready(n.answer); waits || n.alone && len(put)+len(removed) > 0 {
			n.queued, held = true, append(held, name)
			continue
		}
		had := n.sent && n.sentContent != omap.Hash{}
		n.sent, n.sentContent = true, n.content()
		if to.Type == resource.VirtualHost && n.answer == nil && !had {
			absent, size = append(absent, name), size+len(name)
		} else if n.answer != nil {
			put, size = append(put, n.answer), size+n.answer.Size()
		} else if to.Variant == Delta {
			removed, size = append(removed, name), size+len(name)
		}
		if n.alone {
			n.alone = false
			break
		}
	}
	if w.queue = append(held, w.queue...); len(w.queue) == 0 {
		w.queue = nil
	}
	if len(put)+len(removed)+len(absent) == 0 {
		return nil
	}
	version := content.Sum(slices.Values(put))
	to.Version = hex.EncodeToString(version[:])
	m := to.Start()
	for _, r := range put {
		m.Add(r, to.Variant)
	}
	for _, name := range absent {
		m.AddAbsent(name)
	}
	for _, name := range removed {
		m.Remove(name)
	}
	return m.Seal()
}

// writeAnswers emits a message of a type that is answered per proxy.
func (c *Core) writeAnswers(t resource.Type, m *response.Message, out []Action) []Action {
	w := &c.wants.types[t-resource.Types]
	c.lastNonce++
	w.nonce = c.lastNonce
	s := wantedResponse{nonce: w.nonce, names: slices.Clone(m.Names)}
	for _, r := range m.Content {
		s.names = append(s.names, r.Name())
	}
	w.inFlight = append(w.inFlight, s)
	w.inFlight = w.inFlight[max(0, len(w.inFlight)-maxUnanswered):]
	c.sending = sending{active: true}
	return append(out, Action{Kind: Send, Type: t, Message: m, Nonce: formatNonce(w.nonce, t)})
}

// WantStatus describes the progress of a stream in a type that is answered per proxy. It is meant for debug pages and shows no
// content.
type WantStatus struct {
	Type resource.Type
	// Names is the number of names that the client asks for.
	Names int
	// Missing are the names for which the mesh has nothing that this client may have, in order, at most maxListed.
	Missing []string
	// Unanswered is set if the client has neither acknowledged nor rejected some response.
	Unanswered bool
	// Owed is set if the mesh has not answered some name, or the client has not been sent the answer and did not have it when it connected.
	Owed bool
	// Nonce is the last response's nonce; empty before the first response.
	Nonce string
	// Rejected is the reason of the last NACK; empty after an ACK.
	Rejected string
	// Refused is how many demands for virtual hosts were refused, because the stream has as many as it may have.
	Refused int
}

// Wants describes the progress of the stream in the types that are answered per proxy and that the client asked for.
func (c *Core) Wants() (all []WantStatus) {
	if c.wants == nil {
		return nil
	}
	for i := range c.wants.types {
		w := &c.wants.types[i]
		if w.names == nil {
			continue
		}
		s := WantStatus{Type: resource.Types + resource.Type(i), Names: len(w.names), Unanswered: len(w.inFlight) > 0, Rejected: w.reason, Refused: w.refused}
		if w.nonce > 0 {
			s.Nonce = formatNonce(w.nonce, s.Type)
		}
		for _, name := range slices.Sorted(maps.Keys(w.names)) {
			n := w.names[name]
			s.Owed = s.Owed || !n.answered || !n.upToDate()
			if n.answered && n.answer == nil && len(s.Missing) < maxListed {
				s.Missing = append(s.Missing, name)
			}
		}
		all = append(all, s)
	}
	return all
}
