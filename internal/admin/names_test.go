package admin

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/security/ca"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source"
)

var update = flag.Bool("update", false, "rewrite doc/metrics.md")

// registered are the metrics of a registry, by name, with their help.
func registered(m *Metrics) map[string]string {
	descs, all := make(chan *prometheus.Desc, 1000), map[string]string{}
	m.registry.Describe(descs)
	close(descs)
	form := regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)"`)
	for d := range descs {
		if f := form.FindStringSubmatch(d.String()); f != nil {
			all[f[1]] = strings.ReplaceAll(f[2], `\"`, `"`)
		}
	}
	return all
}

// TestIstioMetrics: the metrics that the table says to use exist, and the ones that it says to be missing do not; codes in it exist, too.
func TestIstioMetrics(t *testing.T) {
	m := NewMetrics(run.Build{})
	m.Watch(busy{}, nil, NewBoard(nil))
	m.WatchRegistries(func() []registry.Status { return nil })
	m.Identity(func() *ca.Authority { return nil })
	m.Webhooks()
	have, seen := registered(m), map[string]bool{}
	for _, one := range istioMetrics() {
		_, exists := have[one.Name]
		_, asked := have[one.Ask]
		switch {
		case seen[one.Name]:
			t.Errorf("%s: twice", one.Name)
		case one.Ask == "" && (exists || one.Note == ""), one.Ask != "" && !asked, one.Ask != one.Name && exists:
			t.Errorf("%s: it exists %v, and the table says to ask %q (%s)", one.Name, exists, one.Ask, one.Note)
		}
		seen[one.Name] = true
		for _, c := range regexp.MustCompile(`code="([a-z-]+)"`).FindAllStringSubmatch(one.Note, -1) {
			if _, ok := code.Find(code.Code(c[1])); !ok {
				t.Errorf("%s: there is no code %s", one.Name, c[1])
			}
		}
	}
	for _, dash := range []string{"pilot_xds", "pilot_xds_pushes", "pilot_proxy_convergence_time", "pilot_xds_push_time", "pilot_total_xds_rejects", "pilot_services", "pilot_virt_services"} {
		if !seen[dash] {
			t.Errorf("%s, which the dashboard asks for, is not in the table", dash)
		}
	}
	metricsPage(t, have)
}

// metricsPage compares doc/metrics.md with the registered metrics.
func metricsPage(t *testing.T, have map[string]string) {
	t.Helper()
	const page, from = "../../doc/metrics.md", "| Metric of Istio |"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), from)
	if at < 0 {
		t.Fatalf("%s has no table that begins with %q", page, from)
	}
	var b strings.Builder
	b.WriteString(string(text[:at]) + metricsTable() + "\n## All metrics of the control plane\n\nBeside the metrics of the Go runtime and the process (`go_*`, `process_*`):\n\n| Metric | Meaning |\n|---|---|\n")
	var names []string
	for name := range have {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, have[name])
	}
	if b.String() == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not list the metrics that there are; run `go test ./internal/admin -run TestIstioMetrics -update`", page)
	}
	if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// nowhere is a sink that drops all batches.
type nowhere struct{}

func (nowhere) Apply(source.Batch) {}

// TestEvents: objects of configuration and of Kubernetes are counted by kind and by event.
func TestEvents(t *testing.T) {
	m := NewMetrics(run.Build{})
	rule, service := api.Key{Kind: api.KindDestinationRule, Name: "a"}, api.Key{Kind: kube.KindService, Name: "a", Cluster: "c"}
	m.Counting(nowhere{}).Apply(source.Batch{Events: []source.Event{
		{Key: rule, Object: &api.Object{}, Added: true}, {Key: rule, Object: &api.Object{}}, {Key: rule}, {Key: rule},
		{Key: service, Value: &kube.Service{}, Added: true}, {Key: service, Value: &kube.Service{}}, {Key: service, Value: &kube.Service{}}, {Key: service},
	}})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "pilot_k8s_") {
			continue
		}
		for _, one := range f.GetMetric() {
			text := strings.TrimPrefix(f.GetName(), "pilot_k8s_")
			for _, l := range one.GetLabel() {
				text += " " + l.GetValue()
			}
			got = append(got, fmt.Sprintf("%s %v", text, one.GetCounter().GetValue()))
		}
	}
	want := []string{
		"cfg_events add DestinationRule 1", "cfg_events delete DestinationRule 2", "cfg_events update DestinationRule 1",
		"reg_events add Service 1", "reg_events delete Service 1", "reg_events update Service 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
