package patch

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/rules/envoy"
)

// Listener applies patches to a listener: those about it, its filters, its filter chains, the filters in these, and the route
// configurations in it. Patches of outer objects come first. If a patch about access is left out, the listener closes all connections.
func Listener(l *listenerv3.Listener, at Place, patches []*Patch) Result[*listenerv3.Listener] {
	name := l.GetName()
	return apply(l, at, patches, editing[*listenerv3.Listener]{edit: (*run).listener, deny: denyConnections, check: func(l *listenerv3.Listener) error {
		if l.GetName() != name {
			return fmt.Errorf("the listener %q would be called %q", name, l.GetName())
		}
		return checkListener(l)
	}})
}

func (r *run) listener(l *listenerv3.Listener) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_LISTENER) {
		if p.op == networking.EnvoyFilter_Patch_ADD || !p.selectsListener(l) {
			continue
		}
		if p.op == networking.EnvoyFilter_Patch_REMOVE {
			r.do(i, func() error { return nil })
			return false
		}
		r.do(i, func() error { return p.mergeInto(l) })
	}
	r.listenerFilters(l)
	r.chains(l)
	return true
}

// mergeInto merges the value of a patch into an object.
func (p *Patch) mergeInto(m proto.Message) error {
	if !merges(p.op) {
		return errNoOperation
	}
	if _, err := valueOf[proto.Message](p); err != nil {
		return err
	}
	p.merger().merge(m, p.value)
	return nil
}

func (p *Patch) merger() merger {
	return merger{replaceLists: p.op == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
}

func (r *run) listenerFilters(l *listenerv3.Listener) {
	for i, p := range r.of(networking.EnvoyFilter_LISTENER_FILTER) {
		if !p.selectsListener(l) {
			continue
		}
		name := current(p.match.GetListener().GetListenerFilter())
		selects := func(f *listenerv3.ListenerFilter) bool { return f.GetName() == name }
		if merges(p.op) {
			for _, f := range l.GetListenerFilters() {
				if name == "" || selects(f) {
					r.do(i, func() error { return p.mergeListenerFilter(f) })
				}
			}
			continue
		}
		of := placed[*listenerv3.ListenerFilter]{op: p.op, named: name != "", firstAnyway: true, selects: selects, add: atEnd[*listenerv3.ListenerFilter]}
		if value, ok := p.value.(*listenerv3.ListenerFilter); ok {
			of.value = func() *listenerv3.ListenerFilter { return proto.CloneOf(value) }
		}
		l.ListenerFilters = placeIn(r, i, of, l.GetListenerFilters())
	}
}

func (p *Patch) mergeListenerFilter(f *listenerv3.ListenerFilter) error {
	v, err := valueOf[*listenerv3.ListenerFilter](p)
	if err != nil {
		return err
	}
	config, err := p.merger().config(f.GetTypedConfig(), v.GetTypedConfig())
	if err != nil {
		return err
	}
	rest := proto.CloneOf(v)
	if rest.Name = ""; rest.GetTypedConfig() != nil {
		rest.ConfigType = nil
	}
	p.merger().merge(f, rest)
	if config != nil && f.GetConfigDiscovery() == nil {
		f.ConfigType = &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}
	}
	return nil
}

func (r *run) chains(l *listenerv3.Listener) {
	l.FilterChains = slices.DeleteFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool { return !r.chain(l, c) })
	if c := l.GetDefaultFilterChain(); c != nil && !r.chain(l, c) {
		l.DefaultFilterChain = nil
	}
	for i, p := range r.of(networking.EnvoyFilter_FILTER_CHAIN) {
		if p.op == networking.EnvoyFilter_Patch_ADD && p.selectsListener(l) {
			r.do(i, func() error {
				v, err := valueOf[*listenerv3.FilterChain](p)
				if err == nil {
					l.FilterChains = append(l.FilterChains, proto.CloneOf(v))
				}
				return err
			})
		}
	}
}

func (r *run) chain(l *listenerv3.Listener, c *listenerv3.FilterChain) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_FILTER_CHAIN) {
		if p.op == networking.EnvoyFilter_Patch_ADD || !p.selectsListener(l) || !p.selectsChain(l, c) {
			continue
		}
		if p.op == networking.EnvoyFilter_Patch_REMOVE {
			r.do(i, func() error { return nil })
			return false
		}
		r.do(i, func() error { return p.mergeChain(c) })
	}
	r.networkFilters(l, c)
	return true
}

// mergeChain merges into a filter chain. The configuration of its transport socket is merged as a message, if the value has the same socket.
func (p *Patch) mergeChain(c *listenerv3.FilterChain) error {
	v, err := valueOf[*listenerv3.FilterChain](p)
	if err != nil {
		return err
	}
	v = proto.CloneOf(v)
	if merged, err := p.mergeSocket(c.GetTransportSocket(), v.GetTransportSocket()); err != nil {
		return err
	} else if merged {
		v.TransportSocket = nil
	} else if v.GetTransportSocket() != nil {
		c.TransportSocket = nil
	}
	p.merger().merge(c, v)
	return nil
}

// mergeSocket merges the configuration of a transport socket; merged is false if the value has none, or another socket.
func (p *Patch) mergeSocket(to, from *corev3.TransportSocket) (merged bool, err error) {
	if from == nil || from.GetName() != to.GetName() || to == nil {
		return false, nil
	}
	config, err := p.merger().config(to.GetTypedConfig(), from.GetTypedConfig())
	if err != nil {
		return false, err
	}
	if config != nil {
		to.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
	}
	return true, nil
}

func (r *run) networkFilters(l *listenerv3.Listener, c *listenerv3.FilterChain) {
	about := func(p *Patch) bool { return p.selectsListener(l) && p.selectsChain(l, c) }
	added := classed[*listenerv3.Filter]{}
	for i, p := range r.of(networking.EnvoyFilter_NETWORK_FILTER) {
		if merges(p.op) || !about(p) {
			continue
		}
		c.Filters = placeIn(r, i, p.placedNetwork(c.GetFilters(), added), c.GetFilters())
	}
	for _, f := range c.GetFilters() {
		for i, p := range r.of(networking.EnvoyFilter_NETWORK_FILTER) {
			if merges(p.op) && about(p) && p.mergesNetwork(f) {
				r.do(i, func() error { return p.mergeNetworkFilter(f) })
			}
		}
		r.connectionManager(l, c, f)
	}
}

// placedNetwork is the operation of a patch on the filters for connections.
func (p *Patch) placedNetwork(list []*listenerv3.Filter, added classed[*listenerv3.Filter]) placed[*listenerv3.Filter] {
	name, op := p.networkFilter(), p.op
	if inserts(op) && envoy.ForeignFilter(name) && !slices.ContainsFunc(list, func(f *listenerv3.Filter) bool { return f.GetName() == name }) {
		name, op = "", networking.EnvoyFilter_Patch_ADD
	}
	of := placed[*listenerv3.Filter]{
		op: op, named: name != "", firstAnyway: true, selects: func(f *listenerv3.Filter) bool { return f.GetName() == name },
	}
	if value, ok := p.value.(*listenerv3.Filter); ok {
		value = proto.CloneOf(value)
		of.value = func() *listenerv3.Filter { return value }
		of.add = func(list []*listenerv3.Filter) int { return added.position(list, value, p.class, networkTraits()) }
		if op == networking.EnvoyFilter_Patch_ADD {
			of.named, added[value] = false, p.class
		}
	}
	return of
}

// mergesNetwork reports whether a patch merges into a filter: the one that it names, or without a name each one of the type in its value.
func (p *Patch) mergesNetwork(f *listenerv3.Filter) bool {
	if name := p.networkFilter(); name != "" {
		return name == f.GetName()
	}
	v, ok := p.value.(*listenerv3.Filter)
	return !ok || f.GetTypedConfig() != nil && v.GetTypedConfig() != nil && typeOf(v.GetTypedConfig()) == typeOf(f.GetTypedConfig())
}

func (p *Patch) mergeNetworkFilter(f *listenerv3.Filter) error {
	v, err := valueOf[*listenerv3.Filter](p)
	if err != nil {
		return err
	}
	if v.GetName() != "" {
		f.Name = current(v.GetName())
	}
	if v.GetTypedConfig() == nil {
		if d := v.GetConfigDiscovery(); d != nil {
			f.ConfigType = &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: proto.CloneOf(d)}
		}
		return nil
	}
	config, err := p.merger().config(f.GetTypedConfig(), v.GetTypedConfig())
	if err != nil {
		return err
	}
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
	return nil
}
