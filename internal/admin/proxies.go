package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// subscriber is a connection with its subscriptions.
type subscriber struct {
	Connection
	Version string            `json:"version,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Watches are by type URL.
	Watches map[string]Watch `json:"watches"`
}

// Watch is the subscription of a connection for one type, without the names.
type Watch struct {
	All   bool `json:"all,omitempty"` // it wants everything there is
	Names int  `json:"names,omitempty"`
}

func (p *Pages) adsz(r *http.Request) (any, error) {
	streams, err := p.streams(r)
	list := make([]subscriber, 0, len(streams))
	for _, s := range streams {
		one := subscriber{Connection: s.connected(), Watches: map[string]Watch{}}
		if s.proxy != nil {
			one.Version, one.Labels = s.proxy.Version, mesh.LabelMap(s.proxy.Labels)
		}
		for t, now := range s.Types {
			if now.Subscribed {
				one.Watches[resource.Type(t).URL()] = Watch{now.Wildcard, now.Names}
			}
		}
		list = append(list, one)
	}
	return struct {
		Total   int          `json:"totalClients"`
		Clients []subscriber `json:"clients"`
	}{len(list), list}, err
}

// edsz returns the endpoints for a proxy, as messages of Envoy.
func (p *Pages) edsz(r *http.Request) (any, error) {
	s, err := p.one(r)
	if err != nil {
		return nil, err
	}
	have, err := inspect(r, p, func(v *loop.View) *resource.State {
		class, _ := v.Class(s.Attachment)
		return v.State(class)
	})
	list := []json.RawMessage{}
	if err != nil || have == nil {
		return list, err
	}
	for one := range have.Layers(resource.Endpoint).All() {
		msg, err := one.Proto()
		if err != nil {
			return nil, err
		}
		body, err := messageJSON(msg)
		if err != nil {
			return nil, err
		}
		list = append(list, body)
	}
	return list, nil
}

// instancesz returns the serving ports of the workloads of connected proxies, by connection.
func (p *Pages) instancesz(r *http.Request) (any, error) {
	streams, err := p.streams(r)
	if err != nil {
		return nil, err
	}
	return inspect(r, p, func(v *loop.View) map[string][]why.Instance {
		all := map[string][]why.Instance{}
		for _, s := range streams {
			if class, ok := v.Class(s.Attachment); ok {
				all[s.connection] = why.Instances(class)
			}
		}
		return all
	})
}

// proxyScope describes the hosts that a proxy sees.
type proxyScope struct {
	Proxy     string   `json:"proxy"`
	Namespace string   `json:"namespace"`
	Mode      string   `json:"mode"`
	Sidecar   *Object  `json:"sidecar,omitempty"` // what narrows it
	Hosts     []string `json:"hosts"`
}

func (p *Pages) sidecarz(r *http.Request) (any, error) {
	s, err := p.one(r)
	if err != nil {
		return nil, err
	}
	type found struct {
		class proxy.Class
		names func(yield func(string) bool)
	}
	got, err := inspect(r, p, func(v *loop.View) found {
		class, _ := v.Class(s.Attachment)
		m := why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries}
		return found{class, m.Names(why.Question{Connection: s.Attachment, Kind: why.HostKind})}
	})
	if err != nil {
		return nil, err
	}
	scope := proxyScope{Proxy: s.name(), Namespace: got.class.Namespace, Mode: got.class.Mode.String(), Hosts: why.SortedNames(got.names, "")}
	if got.class.Sidecar.Name != "" {
		by := Object(got.class.Sidecar)
		scope.Sidecar = &by
	}
	return scope, nil
}

// mesh returns the mesh configuration in force: the defaults, merged with the user's file.
func (p *Pages) mesh(r *http.Request) (any, error) {
	m, err := inspect(r, p, func(v *loop.View) *meshconfig.MeshConfig {
		m, _ := v.Tables.MeshConfig.Peek(struct{}{})
		return m
	})
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = api.DefaultMesh()
	}
	body, err := protojson.Marshal(m)
	return json.RawMessage(body), err
}

// pushProgress describes how far proxies have acknowledged the last commit.
type pushProgress struct {
	Revision store.Revision `json:"revision"`
	At       time.Time      `json:"at,omitzero"`
	Errors   int            `json:"errors"`
	Warnings int            `json:"warnings"`
	Proxies  int            `json:"proxies"`
	// Behind are the proxies that have not acknowledged everything that they were sent. Rejecting are the proxies that rejected some of it.
	Behind    []string `json:"behind"`
	Rejecting []string `json:"rejecting"`
}

func (p *Pages) pushStatus(r *http.Request) (any, error) {
	streams, err := p.streams(r)
	if err != nil {
		return nil, err
	}
	now := pushProgress{Proxies: len(streams), Behind: []string{}, Rejecting: []string{}}
	now.Errors, now.Warnings = p.Board.count()
	if last := p.Commits.Last(); len(last) > 0 {
		now.Revision, now.At = last[0].Revision, last[0].At
	}
	for _, s := range streams {
		behind, rejecting := false, s.Types.HoldsBack()
		for _, t := range s.Types {
			behind = behind || stateOf(t) == Stale || stateOf(t) == NotSent
			rejecting = rejecting || stateOf(t) == Rejected
		}
		if behind {
			now.Behind = append(now.Behind, s.name())
		}
		if rejecting {
			now.Rejecting = append(now.Rejecting, s.name())
		}
	}
	return now, nil
}
