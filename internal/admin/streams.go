package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// State is how far a proxy has acknowledged one type.
type State string

// The states of a proxy and a type.
const (
	// Synced: it has acknowledged everything that it was sent.
	Synced State = "SYNCED"
	// Stale: it has not acknowledged the last response.
	Stale State = "STALE"
	// Warming: it has acknowledged everything, and does not use all of it yet.
	Warming State = "WARMING"
	// Rejected: it rejected the last response.
	Rejected State = "REJECTED"
	// NotSent: it has subscribed, resources of the type are missing or old there, and no response was sent yet.
	NotSent State = "NOT SENT"
	// Unwatched: it has not subscribed.
	Unwatched State = "IGNORED"
)

// Sync describes how far a proxy has acknowledged its configuration. Fields have the names that istioctl reads; Types has details.
type Sync struct {
	Cluster    string `json:"cluster_id,omitempty"`
	Proxy      string `json:"proxy"` // name.namespace
	Type       string `json:"proxy_type,omitempty"`
	Version    string `json:"istio_version,omitempty"`
	Envoy      string `json:"envoy_version,omitempty"` // 1.40
	Connection string `json:"connection"`
	Address    string `json:"address"` // where the stream comes from: IP:PORT
	// SharedBy is the number of proxies with this node id, if there are several.
	SharedBy int    `json:"shared_by,omitempty"`
	Protocol string `json:"protocol"` // delta or sotw
	// StaleSince and StaleUntil are the time, as the agent of the proxy reports it, in which the agent had no control plane before it
	// connected. The proxy had the last known good configuration then, or none.
	StaleSince   time.Time `json:"stale_since,omitzero"`
	StaleUntil   time.Time `json:"stale_until,omitzero"`
	ClusterSent  string    `json:"cluster_sent,omitempty"`
	ClusterAcked string    `json:"cluster_acked,omitempty"`

	ListenerSent  string `json:"listener_sent,omitempty"`
	ListenerAcked string `json:"listener_acked,omitempty"`
	RouteSent     string `json:"route_sent,omitempty"`
	RouteAcked    string `json:"route_acked,omitempty"`
	EndpointSent  string `json:"endpoint_sent,omitempty"`
	EndpointAcked string `json:"endpoint_acked,omitempty"`

	// Types are by short name: CDS, EDS, LDS, RDS.
	Types map[string]TypeSync `json:"resources"`
}

// TypeSync describes how far a proxy has acknowledged one type.
type TypeSync struct {
	State         State          `json:"state"`
	SentRevision  store.Revision `json:"sent_revision,omitempty"`
	AckedRevision store.Revision `json:"acked_revision,omitempty"`
	Wildcard      bool           `json:"wildcard,omitempty"` // it wants everything there is
	Names         int            `json:"names,omitempty"`    // how many it asked for by name
	Split         bool           `json:"split,omitempty"`    // its virtual hosts are resources of their own (VHDS)
	LastError     string         `json:"last_error,omitempty"`
	HeldBack      int            `json:"held_back,omitempty"` // how many pieces it rejected and does not get
	Held          []HeldBack     `json:"held,omitempty"`      // the pieces that certainly caused a rejection
	// LagSeconds is how long the proxy has had something that it has not acknowledged, in seconds.
	LagSeconds float64 `json:"lag_seconds,omitempty"`
	// Unacked are resources that the proxy has not acknowledged, in the order in which they were sent. Clusters that an Envoy is
	// warming are among them. UnackedMore is the number of such resources that are not listed.
	Unacked     []Unacked `json:"unacked,omitempty"`
	UnackedMore int       `json:"unacked_more,omitempty"`
	// Warming are resources that the proxy has received and does not use yet, as its agent reports. WarmingMore is true if there are
	// others; with no names, the proxy waits for its first configuration and uses nothing.
	Warming     []string `json:"warming,omitempty"`
	WarmingMore bool     `json:"warming_more,omitempty"`
	// Missing are names that the proxy has subscribed to, and that do not exist or that it may not have.
	Missing []string `json:"missing,omitempty"`
	// Refused is how many demands for hosts (VHDS) were refused, because the sidecar, or all sidecars of its account, have as many as they may have.
	Refused int `json:"refused,omitempty"`
}

// Unused describes Warming for people, in one line; "" if the proxy uses everything that it has received.
func (t TypeSync) Unused() string {
	switch {
	case !t.WarmingMore:
		return strings.Join(t.Warming, ", ")
	case len(t.Warming) == 0:
		return "everything, because it is starting"
	}
	return strings.Join(t.Warming, ", ") + ", others"
}

// Unacked is a resource that a proxy has not acknowledged.
type Unacked struct {
	Name     string         `json:"name"`
	Revision store.Revision `json:"revision"`
	Since    time.Time      `json:"since,omitzero"`
}

// HeldBack is a resource or virtual host that a proxy rejected. It is not sent to this proxy again until its content changes.
type HeldBack struct {
	Name        string    `json:"name"`
	VirtualHost string    `json:"virtual_host,omitempty"` // if it is only that one of a route configuration
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`          // the cause in the proxy's error text
	Field       string    `json:"field,omitempty"` // the rejected field of the object, if it is known
	Objects     []Object  `json:"objects"`         // the object with the rejected field, if it is known; else all objects that the resource is made of
}

// Connection is a connected proxy.
type Connection struct {
	ID        string    `json:"connectionId"`
	Connected time.Time `json:"connectedAt"`
	Address   string    `json:"address"`
	Node      string    `json:"node"`
	Protocol  string    `json:"protocol"`
}

// stream is a connection with its proxy.
type stream struct {
	server.Status
	connection string
	proxy      *proxy.Proxy // nil before the first request was taken in
	warming    connected.Warming
	held       []class.ActiveRejection
	sharedBy   int // proxies with the same node id; 0 if it is the only one
}

// name is name.namespace of the node id.
func (s stream) name() string { return proxy.NameOf(s.Node) }

// streams are the streams that a request asks for, by name: ?proxyID is a part of their ids, ?proxy a short name (see named).
func (p *Pages) streams(r *http.Request) ([]stream, error) {
	q := r.URL.Query()
	list, err := p.connected(r, q.Get("proxyID"), q.Get("namespace"))
	if want := q.Get("proxy"); err == nil && want != "" {
		one, err := named(list, want)
		return []stream{one}, err
	}
	return list, err
}

// connected returns the streams with a text in their ids and in a namespace, as far as the client may know of them. An empty text or
// namespace matches all.
func (p *Pages) connected(r *http.Request, part, namespace string) ([]stream, error) {
	var list []stream
	only, bound := visible(r.Context())
	if bound {
		if namespace != "" && namespace != only {
			return nil, refuse(http.StatusForbidden, "this client may read of the proxies in namespace %s, and not of those in %s", only, namespace)
		}
	}
	for _, status := range p.Streams.Streams() {
		if proxy.IsAgent(status.Node) {
			continue // it is beside a proxy, which has a stream of the same name
		}
		s := stream{Status: status, connection: fmt.Sprintf("%s-%d", status.Node, status.ID)}
		if strings.Contains(s.connection, part) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b stream) int { return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.ID, b.ID)) })
	return inspect(r, p, func(v *loop.View) []stream {
		known := slices.Clone(list) // the list itself may be in use when a request was given up
		for i := range known {
			s := &known[i]
			s.proxy, _ = v.Tables.Proxies.Peek(s.Attachment)
			s.warming, _ = v.Tables.Warming.Peek(s.Attachment)
			s.sharedBy, _ = v.Tables.Shared.Peek(s.Node)
			if s.Types.HoldsBack() {
				s.held = v.Queries.ActiveRejections(v.Graph.Glance(), s.Attachment)
			}
		}
		return slices.DeleteFunc(known, func(s stream) bool { return !s.isIn(namespace) || bound && (s.proxy == nil || !s.isIn(only)) })
	})
}

// isIn reports whether the proxy is in a namespace. Its row decides, and its node id before there is a row. An empty namespace means any.
func (s stream) isIn(namespace string) bool {
	switch {
	case namespace == "":
		return true
	case s.proxy != nil:
		return s.proxy.Namespace == namespace
	}
	return strings.HasSuffix(s.name(), "."+namespace)
}

// heldOf returns the content of a type that is held back.
func (s stream) heldOf(t resource.Type) (list []HeldBack) {
	for _, h := range s.held {
		if resource.Type(h.Type) != t {
			continue
		}
		one := HeldBack{Name: h.Name, VirtualHost: h.VirtualHost(), Since: h.At, Reason: h.Cause(), Field: h.Field, Objects: []Object{}}
		objects := h.Objects
		if h.Object != (api.Key{}) {
			objects = []api.Key{h.Object}
		}
		for _, k := range objects {
			one.Objects = append(one.Objects, Object(k))
		}
		list = append(list, one)
	}
	return list
}

func (s stream) connected() Connection {
	return Connection{ID: s.connection, Connected: s.Connected, Address: s.Peer, Node: s.Node, Protocol: s.Variant.String()}
}

func (s stream) sync() Sync {
	out := Sync{
		Proxy: s.name(), Connection: s.connection, Address: s.Peer, SharedBy: s.sharedBy, Protocol: s.Variant.String(), Types: make(map[string]TypeSync, resource.Types),
	}
	if s.proxy != nil {
		out.Cluster, out.Type, out.Version = s.proxy.ClusterID, string(s.proxy.Role), s.proxy.Version
		if s.proxy.Envoy > 0 {
			out.Envoy = fmt.Sprintf("1.%d", s.proxy.Envoy)
		}
	}
	if s.Alone > 0 {
		out.StaleSince, out.StaleUntil = s.Connected.Add(-s.Alone), s.Connected
	}
	for t, now := range s.Types {
		one := TypeSync{
			State: stateOf(now), SentRevision: now.Sent, AckedRevision: now.Acked, Wildcard: now.Wildcard, Names: now.Names,
			Split: s.Split && resource.Type(t) == resource.Route, LastError: causeOf(now.Rejected), HeldBack: now.HeldBack, Held: s.heldOf(resource.Type(t)), UnackedMore: now.UnackedMore,
		}
		one.Warming, one.WarmingMore = s.warming.Of(uint8(t))
		if one.State == Synced && (one.WarmingMore || len(one.Warming) > 0) {
			one.State = Warming
		}
		if !now.Behind.IsZero() {
			one.LagSeconds = time.Since(now.Behind).Seconds()
		}
		for _, u := range now.Unacked {
			one.Unacked = append(one.Unacked, Unacked(u))
		}
		out.Types[resource.Type(t).String()] = one
	}
	for _, w := range s.Wants {
		out.Types[w.Type.String()] = TypeSync{State: wantState(w), Names: w.Names, LastError: causeOf(w.Rejected), Missing: w.Missing, Refused: w.Refused}
	}
	out.ClusterSent, out.ClusterAcked = nonces(s.Types[resource.Cluster])
	out.ListenerSent, out.ListenerAcked = nonces(s.Types[resource.Listener])
	out.RouteSent, out.RouteAcked = nonces(s.Types[resource.Route])
	out.EndpointSent, out.EndpointAcked = nonces(s.Types[resource.Endpoint])
	return out
}

// causeOf is the cause in the error text of a proxy that rejected a response; empty if it rejected none.
func causeOf(reason string) string {
	if reason == "" {
		return ""
	}
	return rejection.Cause(reason, "")
}

// resumedNonce is reported where no response was needed, because istioctl shows a type without a nonce as NOT SENT.
const resumedNonce = "resumed"

// nonces returns the last nonce sent, and the same nonce again if it was acknowledged, because tools compare the two.
func nonces(t protocol.TypeStatus) (sent, acked string) {
	sent = t.Nonce
	if stateOf(t) == Synced {
		sent = cmp.Or(sent, resumedNonce)
		acked = sent
	}
	return sent, acked
}

func stateOf(t protocol.TypeStatus) State {
	switch {
	case !t.Subscribed:
		return Unwatched
	case t.Rejected != "":
		return Rejected
	case t.Nonce == "" && !resumed(t):
		return NotSent
	case t.InFlight:
		return Stale
	}
	return Synced
}

// resumed reports whether a proxy that was sent nothing on this stream has everything: it has said so when it connected.
func resumed(t protocol.TypeStatus) bool { return t.Sent > 0 && t.Behind.IsZero() }

// wantState returns the state of a type that is answered separately for each proxy.
func wantState(w protocol.WantStatus) State {
	switch {
	case w.Rejected != "":
		return Rejected
	case w.Nonce == "" && w.Owed:
		return NotSent
	case w.Unanswered:
		return Stale
	}
	return Synced
}

func (p *Pages) syncz(r *http.Request) (any, error) {
	streams, err := p.streams(r)
	list := make([]Sync, 0, len(streams))
	for _, s := range streams {
		list = append(list, s.sync())
	}
	return list, err
}

func (p *Pages) connections(r *http.Request) (any, error) {
	streams, err := p.streams(r)
	list := make([]Connection, 0, len(streams))
	for _, s := range streams {
		list = append(list, s.connected())
	}
	return struct {
		Total   int          `json:"totalClients"`
		Clients []Connection `json:"clients"`
	}{len(list), list}, err
}

// one is the stream a request means by ?proxyID: see named.
func (p *Pages) one(r *http.Request) (stream, error) {
	want := r.URL.Query().Get("proxyID")
	if want == "" {
		return stream{}, refuse(http.StatusBadRequest, "say which proxy: ?proxyID=NAME.NAMESPACE (/debug/connections lists them)")
	}
	list, err := p.connected(r, "", "")
	if err != nil {
		return stream{}, err
	}
	return named(list, want)
}

// named is the stream that people mean by a name: the one with exactly that id, node or name; else the only proxy whose
// name begins so; else the only one with the text in its id. Of several streams of one proxy it is the latest: the
// others are about to end.
func named(list []stream, want string) (stream, error) {
	var candidates []stream
	for _, fits := range []func(stream) bool{
		func(s stream) bool { return s.connection == want || s.Node == want || s.name() == want },
		func(s stream) bool { return strings.HasPrefix(s.name(), want) },
		func(s stream) bool { return strings.Contains(s.connection, want) },
	} {
		candidates = candidates[:0]
		for _, s := range list { // by name, then age
			if !fits(s) {
				continue
			}
			if last := len(candidates) - 1; last >= 0 && candidates[last].Node == s.Node {
				candidates[last] = s
			} else {
				candidates = append(candidates, s)
			}
		}
		if len(candidates) > 0 {
			break
		}
	}
	switch len(candidates) {
	case 0:
		return stream{}, refuse(http.StatusNotFound, "no connected proxy is called %q; there are: %s", want, names(list))
	case 1:
		return candidates[0], nil
	}
	return stream{}, refuse(http.StatusBadRequest, "%d proxies are called something like %q; name one of: %s", len(candidates), want, names(candidates))
}

// names returns the names of the first streams.
func names(list []stream) string {
	const enough = 10
	var out []string
	for _, s := range list {
		if len(out) == enough {
			out = append(out, "...")
			break
		}
		if !slices.Contains(out, s.name()) {
			out = append(out, s.name())
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
