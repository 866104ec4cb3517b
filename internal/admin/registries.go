package admin

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/source"
)

// registries is the page about the registries outside Kubernetes.
func (p *Pages) registries(*http.Request) (any, error) {
	if p.Registries == nil {
		return []registry.Status{}, nil
	}
	return p.Registries(), nil
}

// clusters is the page about remote clusters.
func (p *Pages) clusters(*http.Request) (any, error) {
	if p.Clusters == nil {
		return []source.Cluster{}, nil
	}
	return p.Clusters(), nil
}

// WatchRegistries adds the metrics of registries, which are read at each scrape.
func (m *Metrics) WatchRegistries(statuses func() []registry.Status) {
	labels := []string{"registry", "type"}
	m.registry.MustRegister(&registryScrape{
		statuses:  statuses,
		up:        prometheus.NewDesc("pilot_registry_up", "1 if the registry can be read, and 0 if it cannot.", labels, nil),
		services:  prometheus.NewDesc("pilot_registry_services", "Services of the registry in force.", labels, nil),
		instances: prometheus.NewDesc("pilot_registry_instances", "Instances of the services of the registry in force.", labels, nil),
		held:      prometheus.NewDesc("pilot_registry_held_instances", "Instances that the registry does not list any more and the protection holds.", labels, nil),
		problems:  prometheus.NewDesc("pilot_registry_problems", "Problems of the registry and its services.", labels, nil),
	})
}

// registryScrape is the collector of the metrics of registries.
type registryScrape struct {
	statuses                                func() []registry.Status
	up, services, instances, held, problems *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *registryScrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.up, s.services, s.instances, s.held, s.problems} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *registryScrape) Collect(ch chan<- prometheus.Metric) {
	for _, one := range s.statuses() {
		up := 0
		if one.State == registry.Synced || one.State == registry.Held {
			up = 1
		}
		for _, v := range []struct {
			d *prometheus.Desc
			n int
		}{{s.up, up}, {s.services, one.Services}, {s.instances, one.Instances}, {s.held, one.Held}, {s.problems, len(one.Problems)}} {
			ch <- prometheus.MustNewConstMetric(v.d, prometheus.GaugeValue, float64(v.n), one.Name, one.Type)
		}
	}
}
