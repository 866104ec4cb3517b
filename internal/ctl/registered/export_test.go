package registered

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/source/registries"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// consulServer serves a catalog in which web has a healthy, a critical and a light instance, and db one with another port beside it.
func consulServer(t *testing.T) string {
	instance := func(id, address string, port int, meta, status string, weight int) string {
		return fmt.Sprintf(`{"Node": {"Node": "n", "Datacenter": "dc1", "Meta": {"zone": "z"}}, "Service": {"ID": %q, "Address": %q, "Port": %d, "Meta": {%s}, "Weights": {"Passing": %d, "Warning": 1}}, "Checks": [{"CheckID": "c", "Status": %q}]}`,
			id, address, port, meta, weight, status)
	}
	services := map[string]string{
		"web":      instance("1", "192.0.2.1", 8080, `"protocol": "http", "version": "v1"`, "passing", 3) + "," + instance("2", "192.0.2.2", 8080, `"protocol": "http"`, "critical", 1) + "," + instance("3", "192.0.2.3", 8080, `"protocol": "http"`, "passing", 1),
		"db":       instance("1", "192.0.2.4", 5432, "", "passing", 1) + "," + instance("2", "192.0.2.5", 5433, "", "passing", 1),
		"outside":  instance("1", "ext.example.com", 443, `"protocol": "https", "external": "yes"`, "passing", 1),
		"loopback": instance("1", "127.0.0.1", 80, "", "passing", 1),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") != "" {
			<-r.Context().Done() // nothing changes
			return
		}
		w.Header().Set("X-Consul-Index", "7")
		name, ok := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
		if ok {
			fmt.Fprintf(w, "[%s]", services[name])
			return
		}
		names := map[string][]string{"consul": {}}
		for name := range services {
			names[name] = []string{}
		}
		_ = json.NewEncoder(w).Encode(names)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestExportRoundTrip: the written objects have no Problems except for TCP ports without addresses, which the registry does not have either; and a proxy that is served them instead of the registry has equal clusters, endpoints, listeners
// and routes. The names of services in the metadata of clusters differ.
func TestExportRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registries.yaml")
	text := fmt.Sprintf(`registries: [{type: consul, name: west, addresses: [%q]}]`, consulServer(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := func(_, of string) bool { return of == registries.Consul }
	e, err := exportFile(t.Context(), file, "cluster.local", time.Minute, all)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := e.write(&b); err != nil {
		t.Fatal(err)
	}
	written := b.String()
	for _, want := range []string{"127.0.0.1", "# without: instances that must not get traffic are left out: 1", "# of west"} {
		if !strings.Contains(written, want) {
			t.Errorf("the output lacks %s:\n%s", want, written)
		}
	}
	a := analyze.New()
	a.File("export.yaml", []byte(written))
	for _, p := range a.AllProblems("cluster.local") {
		if !strings.Contains(p.Reason, "without addresses the service takes all connections to port 543") { // the ports of db are TCP: so it is by the registry, too
			t.Errorf("%v\n%s", p, written)
		}
	}
	if a.Objects != 4 {
		t.Errorf("%d objects\n%s", a.Objects, written)
	}
	files := meshtest.New(t)
	files.Apply(written)
	registered := meshtest.New(t)
	registered.Observe(servedBy(t, file))
	if got, want := resources(t, files), resources(t, registered); got != want {
		t.Errorf("by the written objects\n%s\nby the registry\n%s", got, want)
	}
}

// servedBy are the services that a control plane would have from a registries file.
func servedBy(t *testing.T, file string) map[api.Key]kube.Value {
	now, err := readFile(t.Context(), file, "cluster.local", time.Minute, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	values := map[api.Key]kube.Value{}
	for k, s := range now.Services {
		values[k] = s
	}
	return values
}

// serviceName matches the name of a service in the metadata of a cluster. A ServiceEntry has a name of its own.
var serviceName = regexp.MustCompile(`(?m)^ *name: .*\n( *namespace: )`)

// resources returns the resources of a sidecar, without the names of services in metadata. Instances without traffic are not in them.
func resources(t *testing.T, w *meshtest.World) string {
	c := w.Connect(meshtest.Node(t, "sidecar~10.9.9.1~web.shop~shop.svc.cluster.local", ""))
	w.Check()
	text := serviceName.ReplaceAllString(meshtest.Print(t, w.State(c), func(resource.Type, string) bool { return true }), "$1")
	if !strings.Contains(text, "outbound|8080||web.service.consul") || !strings.Contains(text, "192.0.2.3") {
		t.Errorf("the services are missing:\n%s", text)
	}
	return text
}

// TestExportServed: a control plane that never read a registry, or does not have it, gives nothing; the state of one that it cannot read now is a remark.
func TestExportServed(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	states := []registry.Status{
		{Name: "west", Type: "consul", State: registry.Stale, LastSync: &at, Problems: []string{"warning: odd\n---\nkind: Secret"}},
		{Name: "new", Type: "consul", State: registry.Connecting, LastError: "connection refused"},
		{Name: "config", Type: "mcp", State: registry.Connecting},
	}
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var page any = states
		if r.URL.Path == "/debug/exportz" {
			asked = r.URL.RawQuery
			page = []admin.Exported{{Namespace: "default", Name: "web", Registries: []string{"west"}, Spec: json.RawMessage(`{"hosts": ["web.test"]}`)}}
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer s.Close()
	export := func(names ...string) (string, error) {
		c := ExportCommand()
		var b strings.Builder
		c.SetOut(&b)
		c.SetErr(&b)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"all", "--address=" + s.URL}, names...))
		err := c.ExecuteContext(t.Context())
		return b.String(), err
	}
	got, err := export("--registry=west")
	want := "# registry west: stale; it was last read at 2026-01-02T03:04:05Z\n# warning: odd --- kind: Secret\n---\n# of west\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: web\n  namespace: default\nspec:\n  hosts:\n  - web.test\n"
	if err != nil || got != want || asked != "registry=west" {
		t.Errorf("%q, %v\n%s", asked, err, got)
	}
	for flag, want := range map[string]string{
		"--registry=new": "has never read the registry new: its state is connecting connection refused", "--registry=none": "has no such registry; it has west (consul), new (consul), config (mcp)",
		"--registry=config": "has no such registry", "--registry=west,new": "has never read the registry new",
	} {
		if got, err := export(flag); err == nil || got != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", flag, got, err, want)
		}
	}
}
