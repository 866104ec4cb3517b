package patch

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// Cluster applies patches to a cluster.
func Cluster(c *clusterv3.Cluster, at Place, patches []*Patch) Result[*clusterv3.Cluster] {
	name := c.GetName()
	return apply(c, at, patches, editing[*clusterv3.Cluster]{edit: (*run).cluster, check: func(c *clusterv3.Cluster) error {
		if c.GetName() != name {
			return fmt.Errorf("routes lead to %q, and it would be called %q", name, c.GetName())
		}
		return nil
	}})
}

func (r *run) cluster(c *clusterv3.Cluster) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_CLUSTER) {
		if p.Adds() || !p.selectsCluster(r.place, c) {
			continue
		}
		if p.op == networking.EnvoyFilter_Patch_REMOVE {
			r.do(i, func() error { return nil })
			return false
		}
		r.do(i, func() error { return p.mergeCluster(c) })
	}
	return true
}

// mergeCluster merges into a cluster. The configuration of its transport sockets is merged as a message, where the value has the same socket.
func (p *Patch) mergeCluster(c *clusterv3.Cluster) error {
	v, err := valueOf[*clusterv3.Cluster](p)
	if err != nil || !merges(p.op) {
		return p.mergeInto(c)
	}
	v = proto.CloneOf(v)
	if from := v.GetTransportSocket(); from != nil {
		matches := c.GetTransportSocketMatches()
		at := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == from.GetName()
		})
		var merged bool
		switch {
		case at >= 0:
			merged, err = p.mergeSocket(matches[at].GetTransportSocket(), from)
		case len(matches) > 0:
			return fmt.Errorf("the cluster chooses among %d transport sockets by endpoint, and none is %s", len(matches), from.GetName())
		default:
			merged, err = p.mergeSocket(c.GetTransportSocket(), from)
		}
		if err != nil {
			return err
		}
		if merged {
			v.TransportSocket = nil
		} else {
			c.TransportSocket = nil
		}
	}
	p.merger().merge(c, v)
	return nil
}

// AddedClusters returns the clusters that patches add.
func AddedClusters(patches []*Patch) ([]*clusterv3.Cluster, []Outcome) {
	return added[*clusterv3.Cluster](patches, networking.EnvoyFilter_CLUSTER)
}

// AddedListeners returns the listeners that patches add.
func AddedListeners(patches []*Patch) ([]*listenerv3.Listener, []Outcome) {
	return added[*listenerv3.Listener](patches, networking.EnvoyFilter_LISTENER)
}

// Extensions returns the configuration of extensions that proxies fetch by name.
func Extensions(patches []*Patch) ([]*corev3.TypedExtensionConfig, []Outcome) {
	return added[*corev3.TypedExtensionConfig](patches, networking.EnvoyFilter_EXTENSION_CONFIG)
}

// added returns the objects of a kind that patches add. Of several with one name the first counts.
func added[M interface {
	proto.Message
	GetName() string
}](patches []*Patch, kind networking.EnvoyFilter_ApplyTo) (list []M, outcomes []Outcome) {
	for _, p := range patches {
		if p.ApplyTo != kind || !p.Adds() {
			continue
		}
		o := Outcome{Patch: p.Ref, Matched: 1, Failure: p.Flaw}
		m, err := valueOf[M](p)
		if err == nil {
			err = checkAdded(m, list)
		}
		switch {
		case o.Failure != "":
		case err != nil:
			o.Failure = err.Error()
		default:
			list = append(list, m)
		}
		outcomes = append(outcomes, o)
	}
	return list, outcomes
}

func checkAdded[M interface {
	proto.Message
	GetName() string
}](m M, list []M) error {
	if m.GetName() == "" {
		return fmt.Errorf("the added %s has no name", m.ProtoReflect().Descriptor().Name())
	}
	if slices.ContainsFunc(list, func(o M) bool { return o.GetName() == m.GetName() }) {
		return fmt.Errorf("an earlier patch adds %q, too", m.GetName())
	}
	if err := validate(m); err != nil {
		return fmt.Errorf("Envoy would refuse it: %w", err)
	}
	if l, ok := any(m).(*listenerv3.Listener); ok {
		return checkListener(l)
	}
	return nil
}

// checkRequests finds filters for requests that Envoy refuses because of their order.
func checkRequests(f *listenerv3.Filter) error {
	m := &hcmv3.HttpConnectionManager{}
	if f.GetTypedConfig().MessageName() != connectionManager || f.GetTypedConfig().UnmarshalTo(m) != nil {
		return nil //nolint:nilerr // another check finds a configuration that cannot be decoded
	}
	ends := httpTraits().ends
	for i, f := range m.GetHttpFilters() {
		if last := i == len(m.GetHttpFilters())-1; ends(f) && !last {
			return fmt.Errorf("the filter %q is not the last one for requests", f.GetName())
		}
	}
	if n := len(m.GetHttpFilters()); n == 0 || m.GetHttpFilters()[n-1].GetTypedConfig() != nil && !ends(m.GetHttpFilters()[n-1]) {
		return fmt.Errorf("no filter for requests ends the list, such as envoy.filters.http.router")
	}
	return nil
}
