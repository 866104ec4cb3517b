package admin

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// scrapeTimeout is how long a scrape waits for the loop. After that it returns the values of the last scrape.
const scrapeTimeout = time.Second

// Watch adds the metrics that are read at each scrape.
func (m *Metrics) Watch(mesh loop.Inspector, streams server.Lister, board *Board) {
	m.registry.MustRegister(&scrape{mesh: mesh, streams: streams, board: board, desc: describeScrape()})
}

// scrape is the collector of metrics of a state.
type scrape struct {
	mesh    loop.Inspector
	streams server.Lister
	board   *Board
	desc    scrapeDesc

	mu   sync.Mutex
	last sizes
}

// sizes are the values that only the loop knows.
type sizes struct {
	revision                  store.Revision
	services, virtualServices int
	objects                   map[string]int
	classes, full             int
	proxies                   map[string]int // by version
	cells                     map[string]int
	faults                    int
}

type scrapeDesc struct {
	proxies, services, virtualServices, objects, revision, classes, full, cells, faults, problems, codes *prometheus.Desc
	rejects                                                                                              [resource.Types]*prometheus.Desc
}

func describeScrape() scrapeDesc {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	d := scrapeDesc{
		proxies:         desc("pilot_xds", "Connected proxies, by the release they say they are.", "version"),
		services:        desc("pilot_services", "Services known to the control plane."),
		virtualServices: desc("pilot_virt_services", "VirtualServices known to the control plane."),
		objects:         desc("pilot_objects", "Objects in force, by kind.", "kind"),
		revision:        desc("pilot_revision", "The number of the last commit."),
		classes:         desc("pilot_classes", "Classes of proxies that receive the same."),
		full:            desc("pilot_hosts_on_demand_full", "Connected sidecars that are refused further hosts on demand, because they or all sidecars of their account have as many as they may have."),
		cells:           desc("pilot_cells", "Cells that are held, by query.", "query"),
		faults:          desc("pilot_cell_faults", "Cells with a fault: their last run panicked, or they break a rule of the kernel. A bug in either case."),
		problems:        desc("pilot_problems", "Problems of objects, by level.", "level"),
		codes:           desc("pilot_problem_codes", "Problems of objects, by code; doc/problems.md says what a code means.", "code"),
	}
	for t := range d.rejects {
		d.rejects[t] = desc("pilot_xds_"+label(resource.Type(t))+"_reject", "Proxies that reject the last response that they got.", "node", "err")
	}
	return d
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	d := s.desc
	for _, one := range append(d.rejects[:], d.proxies, d.services, d.virtualServices, d.objects, d.revision, d.classes, d.full, d.cells, d.faults, d.problems, d.codes) {
		ch <- one
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	now := s.sizes()
	send(s.desc.services, now.services)
	send(s.desc.virtualServices, now.virtualServices)
	send(s.desc.revision, int(now.revision))
	send(s.desc.classes, now.classes)
	send(s.desc.full, now.full)
	send(s.desc.faults, now.faults)
	for kind, n := range now.objects {
		send(s.desc.objects, n, kind)
	}
	for query, n := range now.cells {
		send(s.desc.cells, n, query)
	}
	errors, warnings := s.board.count()
	send(s.desc.problems, errors, "error")
	send(s.desc.problems, warnings, "warning")
	for c, n := range s.board.byCode() {
		send(s.desc.codes, n, string(c))
	}
	for version, n := range now.proxies {
		send(s.desc.proxies, n, version)
	}
	s.collectRefusals(send)
}

// collectRefusals collects, for each type, the proxies that reject content of the type.
func (s *scrape) collectRefusals(send func(d *prometheus.Desc, n int, labels ...string)) {
	for t, d := range s.desc.rejects {
		refused := map[string]int{}
		for _, one := range s.streams.Streams() {
			if one.Types[t].Rejected != "" {
				refused[stream{Status: one}.name()]++
			}
		}
		for name, n := range refused {
			send(d, n, name, "rejected")
		}
	}
}

// sizes asks the loop for its values. If the loop is busy, it returns the last ones, because a scrape must not fail during a large
// commit.
func (s *scrape) sizes() sizes {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	now, err := loop.Look(ctx, s.mesh, func(v *loop.View) sizes {
		now := sizes{
			revision: v.Graph.Revision(), services: v.Tables.Services.Len(), virtualServices: v.Tables.VirtualServices.Len(),
			classes: len(v.Classes), full: v.Tables.Full.Len(), cells: v.Graph.Cells(), faults: len(v.Graph.Faults()), objects: map[string]int{}, proxies: map[string]int{},
		}
		for _, kind := range api.Kinds() {
			now.objects[kind.Name] = v.Tables.Kinds.Peek(kind.Name).Len()
		}
		for version := range v.Tables.ProxyVersions.Peek(struct{}{}).All() {
			now.proxies[cmp.Or(string(version), "unknown")] += v.Tables.ProxiesOf.Peek(string(version)).Len()
		}
		s.board.look(v)
		return now
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last = now
	}
	return s.last
}
