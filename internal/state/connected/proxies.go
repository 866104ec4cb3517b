package connected

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// HealthState is the last known health of a workload.
type HealthState uint8

// The states of health.
const (
	HealthUnknown HealthState = iota
	Healthy
	Unhealthy
)

// Health is the health of its workload that a proxy reports.
type Health struct {
	State HealthState
	// Message is the reason why a workload is unhealthy.
	Message string
}

func (t *Rows) defineProxies(db *store.DB) {
	t.Proxies = store.NewTable[string, *proxy.Proxy](db, "proxies", (*proxy.Proxy).Equal)
	t.AllProxies = store.NewIndex(t.Proxies, "allProxies", func(id string, _ *proxy.Proxy, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(id))
	})
	t.ProxiesOf = store.NewIndex(t.Proxies, "proxiesOfVersion", func(id string, p *proxy.Proxy, add func(string, omap.Name)) {
		add(p.Version, omap.Name(id))
	})
	t.ProxyVersions = store.NewIndex(t.Proxies, "proxyVersions", func(_ string, p *proxy.Proxy, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(p.Version))
	})
	t.ProxiesIn = store.NewIndex(t.Proxies, "proxiesIn", func(id string, p *proxy.Proxy, add func(string, omap.Name)) {
		add(p.Namespace, omap.Name(id))
	})
	t.Bootstrapped = store.NewIndex(t.Proxies, "bootstrappedProxies", func(id string, p *proxy.Proxy, add func(string, omap.Name)) {
		if p.Role == proxy.Sidecar || p.Role == proxy.Router {
			add("", omap.Name(id))
			add(p.Namespace, omap.Name(id))
		}
	})
	t.ProxiesAt = store.NewIndex(t.Proxies, "proxiesAt", func(id string, p *proxy.Proxy, add func(string, omap.Name)) {
		for _, address := range p.Addresses {
			add(address, omap.Name(id))
		}
	})
	t.RoutersWith = store.NewIndex(t.Proxies, "routersWith", func(id string, p *proxy.Proxy, add func(mesh.Label, omap.Name)) {
		if p.Role != proxy.Router {
			return
		}
		add(mesh.Label{}, omap.Name(id))
		for l := range p.Labels.All() {
			add(l, omap.Name(id))
		}
	})
	t.Shared = store.NewTable[string, int](db, "shared", func(a, b int) bool { return a == b })
	t.SharedIDs = store.NewIndex(t.Shared, "sharedIDs", func(id string, _ int, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(id))
	})
	t.Health = store.NewTable[string, Health](db, "health", func(a, b Health) bool { return a == b })
	t.Registering = store.NewIndex(t.Proxies, "registering", func(id string, p *proxy.Proxy, add func(api.Key, proxy.Registering)) {
		if k, ok := proxy.EntryOf(p); ok {
			add(k, proxy.RegisteringOf(id, p))
		}
	})
	t.WantedEntries = store.NewIndex(t.Proxies, "wantedEntries", func(_ string, p *proxy.Proxy, add func(struct{}, api.Key)) {
		if k, ok := proxy.EntryOf(p); ok {
			add(struct{}{}, k)
		}
	})
}
