package protocol

import (
	"encoding/hex"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxWants is how many names of one type a stream may ask for where each is answered for it alone.
	maxWants = 4096
	// maxWantName is the longest such name, in bytes.
	maxWantName = 1024
	// maxUnanswered is how many responses of such a type are remembered until they are acknowledged; a client that
	// acknowledges none loses the oldest.
	maxUnanswered = 16
)

// Answer is what the mesh has for a name that a stream asked for.
type Answer struct {
	Type resource.Type
	Name string
	// Resource is nil if there is none, or none for this client.
	Resource *resource.Resource
}

// wants are the types that are answered proxy by proxy. A client asks for names, the mesh is told (Want), and its answers are sent
// as they come. Nothing here is shared between streams: no message, no subscription, no state.
type wants struct {
	types [resource.AllTypes - resource.Types]wantedType
}

// wantedType is where a stream stands in one of these types.
type wantedType struct {
	names      map[string]*want // nil: the client has not asked for the type
	due        []string         // names whose answer is to be sent, each once, in the order in which it came
	nonce      uint64           // of the last response
	unanswered []wantedSent
	refused    string // the reason of the last rejection, until the next acknowledgement
}

// want is one name.
type want struct {
	answer *resource.Resource // nil: there is none
	known  bool               // the mesh has answered
	due    bool               // listed in wantedType.due
	told   bool               // the client has been told what follows
	sent   omap.Hash          // the content it was sent; zero if that there is none
	had    string             // the version it said it has from an earlier stream
	bad    bool               // the client rejected what it was told last
}

// wantedSent is a response that the client has not answered.
type wantedSent struct {
	nonce uint64
	names []string
}

// want takes in a request for a type that is answered proxy by proxy.
func (c *Core) want(t resource.Type, q *Request, out []Action) []Action {
	if c.wants == nil {
		c.wants = &wants{}
	}
	w := &c.wants.types[t-resource.Types]
	out, stale := w.answered(t, q, out)
	if stale && q.Variant == StateOfTheWorld {
		return out // the client will speak again when it has read the response it had not seen
	}
	asked, long := askedIn(q, w.names == nil)
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

// askedIn are the names a request asks for, each with the version the client has of it. What a client has it asks for, also if
// it does not say so. These types have no wildcard: a star is no name. long: one is too long.
func askedIn(q *Request, first bool) (asked map[string]string, long bool) {
	asked = make(map[string]string, q.Subscribes)
	for name := range q.Subscribed() {
		if long = long || len(name) > maxWantName; !long && string(name) != star {
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

// add notes what is asked for and returns what was not before. Who asks again in the delta variant may have forgotten what it had
// and is told once more.
func (w *wantedType) add(asked map[string]string, v Variant) (added []string) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		n := w.names[name]
		switch {
		case n == nil:
			w.names[name] = &want{had: asked[name]}
			added = append(added, name)
		case v == Delta:
			n.told = false
			w.consider(name, n)
		}
	}
	return added
}

// drop forgets what is no longer asked for: in State-of-the-World what is not in the list.
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

// answered takes the request as the answer to a response, if it is one; it stands for those before it, too.
func (w *wantedType) answered(t resource.Type, q *Request, out []Action) (_ []Action, stale bool) {
	if len(q.Nonce) == 0 || w.nonce == 0 {
		return out, false
	}
	n := parseNonce(q.Nonce, t)
	i := slices.IndexFunc(w.unanswered, func(s wantedSent) bool { return s.nonce == n })
	stale = n != w.nonce
	switch {
	case i >= 0 && q.Rejected:
		w.refused = request.StatusText(q.Detail, maxReason)
		out = append(out, Action{Kind: Rejected, Type: t, Text: w.refused, Names: w.judged(w.unanswered[i].names, true)})
	case i >= 0:
		w.refused = ""
		var good []string
		for _, s := range w.unanswered[:i+1] {
			good = append(good, w.judged(s.names, false)...)
		}
		if len(good) > 0 {
			out = append(out, Action{Kind: Cleared, Type: t, Names: good})
		}
	case stale:
		return append(out, Action{Kind: Expired, Type: t}), true
	}
	w.unanswered = w.unanswered[i+1:]
	return out, stale
}

// judged notes what the client said of the answers to some names, and returns those of which it says something new: a rejection
// always is.
func (w *wantedType) judged(names []string, bad bool) (news []string) {
	for _, name := range names {
		if n := w.names[name]; n != nil && (bad || n.bad) {
			n.bad = bad
			news = append(news, name)
		}
	}
	return news
}

// take takes answers of the mesh in. Those to names that are no longer asked for are late.
func (w *wants) take(answers []Answer) {
	if w == nil {
		return
	}
	for _, a := range answers {
		t := &w.types[a.Type-resource.Types]
		if n := t.names[a.Name]; n != nil {
			n.answer, n.known = a.Resource, true
			t.consider(a.Name, n)
		}
	}
}

// consider lists a name if the client lacks the answer to it.
func (w *wantedType) consider(name string, n *want) {
	if !n.known {
		return
	}
	if n.answer != nil && n.answer.Version() == n.had {
		n.told, n.sent = true, n.content()
	}
	n.had = ""
	if !n.due && n.owed() {
		n.due = true
		w.due = append(w.due, name)
	}
}

func (n *want) owed() bool { return !n.told || n.sent != n.content() }

// content is the hash of the answer; zero if there is none.
func (n *want) content() omap.Hash {
	if n.answer == nil {
		return omap.Hash{}
	}
	return n.answer.ContentHash()
}

// message makes the next response of these types, nil if nothing is due.
func (w *wants) message(v Variant, controlPlane string) (*Message, resource.Type) {
	if w == nil {
		return nil, 0
	}
	for i := range w.types {
		t := resource.Types + resource.Type(i)
		if m := w.types[i].next(&writer{variant: v, typ: t, controlPlane: controlPlane}); m != nil {
			return m, t
		}
	}
	return nil, 0
}

// next makes a response of what is due, as much as one message takes. Only the delta variant can say that there is no such thing.
func (w *wantedType) next(to *writer) *Message {
	var put []*resource.Resource
	var gone []string
	for size := 0; len(w.due) > 0 && size < maxMessage; {
		name := w.due[0]
		w.due = w.due[1:]
		n := w.names[name]
		if n == nil || !n.due {
			continue // it was dropped
		}
		n.due = false
		if !n.owed() {
			continue
		}
		n.told, n.sent = true, n.content()
		if n.answer != nil {
			put, size = append(put, n.answer), size+n.answer.Size()
		} else if to.variant == Delta {
			gone, size = append(gone, name), size+len(name)
		}
	}
	if len(w.due) == 0 {
		w.due = nil
	}
	if len(put)+len(gone) == 0 {
		return nil
	}
	version := sum(slices.Values(put))
	to.version = hex.EncodeToString(version[:])
	m := to.start()
	for _, r := range put {
		m.add(r, to.variant)
	}
	for _, name := range gone {
		m.remove(name)
	}
	return m.seal()
}

// writeAnswers emits a message of a type that is answered proxy by proxy.
func (c *Core) writeAnswers(t resource.Type, m *Message, out []Action) []Action {
	w := &c.wants.types[t-resource.Types]
	c.nonces++
	w.nonce = c.nonces
	s := wantedSent{nonce: w.nonce, names: slices.Clone(m.removed)}
	for _, r := range m.resources {
		s.names = append(s.names, r.Name())
	}
	w.unanswered = append(w.unanswered, s)
	w.unanswered = w.unanswered[max(0, len(w.unanswered)-maxUnanswered):]
	c.busy = true
	return append(out, Action{Kind: Send, Type: t, Message: m, Nonce: formatNonce(w.nonce, t)})
}

// WantStatus is where a stream stands in a type that is answered proxy by proxy, for people. Content is not shown.
type WantStatus struct {
	Type  resource.Type
	Names int
	// Missing are names for which there is nothing, or nothing for this client, in order; as many as a status lists.
	Missing []string
	// Unanswered: a response was sent that the client has neither acknowledged nor rejected.
	Unanswered bool
	Nonce      string
	Rejected   string // the reason of the last rejection, if no acknowledgement came since
}

// Wants says where the stream stands in each type that is answered proxy by proxy, of those it asked for.
func (c *Core) Wants() (all []WantStatus) {
	if c.wants == nil {
		return nil
	}
	for i := range c.wants.types {
		w := &c.wants.types[i]
		if w.names == nil {
			continue
		}
		s := WantStatus{Type: resource.Types + resource.Type(i), Names: len(w.names), Unanswered: len(w.unanswered) > 0, Rejected: w.refused}
		if w.nonce > 0 {
			s.Nonce = formatNonce(w.nonce, s.Type)
		}
		for _, name := range slices.Sorted(maps.Keys(w.names)) {
			if n := w.names[name]; n.known && n.answer == nil && len(s.Missing) < maxListed {
				s.Missing = append(s.Missing, name)
			}
		}
		all = append(all, s)
	}
	return all
}
