// Package telemetry translates which logs, traces and metrics proxies make into access loggers and tracing of their listeners.
//
// It owns the settings of Envoy's loggers and tracers. Which ones apply to a class is decided by the package of the same name among the views.
//
// Invariants: settings depend on no single workload: what differs between workloads of a class comes from the environment of their Envoy.
// A provider that proxies cannot use is left out, and the listener serves without it. The package starts no goroutines.
package telemetry

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Key names the settings of some proxies for one side of connections.
type Key struct {
	Set  view.Set
	Side view.Side
	// Hosts are the hosts that the proxies see, as far as that decides which services of providers they reach.
	Hosts scope.Set
	// Gateway is true for gateways.
	Gateway bool
	// DefaultLog says that logs have the default format where theirs needs a newer Envoy. OldStats is the minor version of an Envoy that
	// is too old for all features of the logger for metrics; 0 for others.
	DefaultLog bool
	OldStats   uint32
}

// Settings are how listeners log and trace.
type Settings struct {
	// logs are the loggers of filters, and unmatched are the loggers of a listener itself, which log connections that no filter chain matches.
	logs, unmatched []*accesslogv3.AccessLog
	// tracing is how requests are traced; nil if they are not.
	tracing *hcmv3.HttpConnectionManager_Tracing
	// requestIDs says how request ids are made; nil for Envoy's default.
	requestIDs *hcmv3.RequestIDExtension
	// stats count requests and connections, and secureStats those over mutual TLS of the mesh. measured says that there are any.
	stats, secureStats stats
	measured           bool
	// peer is the filter that remembers what the certificate of the client says; nil for none. headers and secureHeaders are the filters for the headers
	// of proxies about their workload: of requests over mutual TLS of the mesh, and of others. They are nil if requests keep such headers.
	peer                   *listenerv3.Filter
	headers, secureHeaders *hcmv3.HttpFilter
}

func (s Settings) equal(o Settings) bool {
	same := func(a, b []*accesslogv3.AccessLog) bool {
		return slices.EqualFunc(a, b, func(a, b *accesslogv3.AccessLog) bool { return proto.Equal(a, b) })
	}
	return same(s.logs, o.logs) && same(s.unmatched, o.unmatched) && proto.Equal(s.tracing, o.tracing) && proto.Equal(s.requestIDs, o.requestIDs) &&
		s.stats.equal(o.stats) && s.secureStats.equal(o.secureStats) && s.measured == o.measured && proto.Equal(s.peer, o.peer) &&
		proto.Equal(s.headers, o.headers) && proto.Equal(s.secureHeaders, o.secureHeaders)
}

// Queries are the settings of proxies.
type Queries struct {
	tables   *state.Tables
	scope    *scope.Queries
	settings query.Query[Key, Settings]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, scope: sc}
	q.settings = query.Define(g, "telemetry", Settings.equal, func(r *query.Reader, k Key) (Settings, bool) {
		b := builder{q: q, r: r, Key: k}
		return b.settings(), true
	})
	return q
}

// KeyOf returns the key of a class for one side of connections.
func (q *Queries) KeyOf(r *query.Reader, c proxy.Class, side view.Side) Key {
	return Key{Set: view.SetOf(q.tables, r, c), Side: side, Hosts: q.hostsOf(r, c), Gateway: c.Gateway, DefaultLog: c.DefaultLog, OldStats: c.OldStats}
}

// hostsOf returns what decides which services of providers a class reaches: the base view, unless the class has a Sidecar or one of
// the services looks different from its namespace.
func (q *Queries) hostsOf(r *query.Reader, c proxy.Class) scope.Set {
	all := q.tables.Telemetry.Backends.Group(r, struct{}{})
	if all.Len() == 0 {
		return scope.Set{}
	}
	set := scope.SetOf(c).WithoutNames()
	if !set.Overlay() {
		return set
	}
	for host := range all.All() {
		if q.scope.Viewer(r, string(host), c.Namespace) != "" {
			return set
		}
	}
	return scope.Set{}
}

// Settings returns the settings of proxies.
func (q *Queries) Settings(r *query.Reader, k Key) Settings {
	s, _ := q.settings.Get(r, k)
	return s
}

// Apply makes listeners log and trace.
func (s Settings) Apply(list ...*listenerv3.Listener) {
	if len(s.logs) == 0 && s.tracing == nil && !s.measured {
		return
	}
	for _, l := range list {
		for _, c := range l.FilterChains {
			s.apply(c)
		}
		if l.DefaultFilterChain != nil {
			s.apply(l.DefaultFilterChain)
		}
		l.AccessLog = append(l.AccessLog, s.unmatched...)
	}
}

// apply changes a filter chain. Filters are replaced and not changed, because several chains of a listener may have the same one.
func (s Settings) apply(c *listenerv3.FilterChain) {
	stats, headers, secure := s.stats, s.headers, envoy.IsMeshTLS(c.TransportSocket)
	if secure {
		stats, headers = s.secureStats, s.secureHeaders
	}
	c.Filters = slices.Clone(c.Filters)
	for i, f := range c.Filters {
		m, err := f.GetTypedConfig().UnmarshalNew()
		if err != nil {
			continue // the validation of the encoded resource reports it
		}
		switch m := m.(type) {
		case *hcmv3.HttpConnectionManager:
			m.AccessLog = append(m.AccessLog, s.logs...)
			if stats.http != nil {
				m.AccessLog = append(m.AccessLog, stats.http)
			}
			m.Tracing = s.tracing
			if s.requestIDs != nil {
				m.RequestIdExtension = s.requestIDs
			}
			if headers != nil {
				m.HttpFilters = append([]*hcmv3.HttpFilter{headers}, m.HttpFilters...)
			}
		case *tcpproxyv3.TcpProxy:
			s.countConnections(m, stats, secure)
		default:
			continue
		}
		c.Filters[i] = &listenerv3.Filter{Name: f.GetName(), ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Pack(m)}}
	}
	if secure && s.peer != nil {
		c.Filters = append([]*listenerv3.Filter{s.peer}, c.Filters...)
	}
}

// countConnections adds the loggers of connections. Where they count established connections, the other logs are still written once per
// connection. The certificate of a client is known only after the handshake, so a connection to the application waits for that.
func (s Settings) countConnections(m *tcpproxyv3.TcpProxy, stats stats, secure bool) {
	if len(stats.tcp) == 0 {
		m.AccessLog = append(m.AccessLog, s.logs...)
		return
	}
	ended := logTypes(true, dataaccesslogv3.AccessLogType_TcpUpstreamConnected)
	for _, log := range s.logs {
		m.AccessLog = append(m.AccessLog, &accesslogv3.AccessLog{Name: log.Name, ConfigType: log.ConfigType, Filter: both(ended, log.Filter)})
	}
	m.AccessLog = append(m.AccessLog, stats.tcp...)
	m.AccessLogOptions = &tcpproxyv3.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true}
	if secure && s.peer != nil {
		m.UpstreamConnectMode, m.MaxEarlyDataBytes = tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE, envoy.Uint(0)
	}
}

// builder makes the settings of a key.
type builder struct {
	q *Queries
	r *query.Reader
	Key
}

func (b builder) settings() Settings {
	var s Settings
	for _, log := range b.logs() {
		s.logs = append(s.logs, log.of(log.filter))
		if !b.q.tables.AccessLog(b.r).NoListeners {
			s.unmatched = append(s.unmatched, log.of(both(unmatched(), log.filter)))
		}
	}
	b.measure(&s, view.MetricsOf(b.q.tables, b.r, b.Set, b.Side))
	if traces, on := view.TracesOf(b.q.tables, b.r, b.Set, b.Side); on {
		s.tracing = b.tracing(traces)
		if s.tracing != nil && traces.IgnoreRequestID {
			s.requestIDs = ignoreRequestID()
		}
	}
	return s
}

// measure adds what counts some metrics.
func (b builder) measure(s *Settings, metrics []view.Metric) {
	if len(metrics) == 0 {
		return
	}
	s.measured, s.stats = true, b.stats(metrics, false)
	if b.Gateway { // its clients may be outside of the mesh, and its servers, too
		s.headers, s.secureHeaders = envoy.RemovePeerHeaders(), envoy.RemovePeerHeaders()
	}
	if b.Side != view.Server {
		return
	}
	s.secureStats = b.stats(metrics, true)
	s.headers, s.secureHeaders = envoy.RemovePeerHeaders(), envoy.RemovePeerHeaders()
	if b.OldStats == 0 {
		s.peer, s.secureHeaders = rememberPeer(), readHeaders()
	}
}
