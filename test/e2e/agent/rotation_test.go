package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// The services of the test of rotations: two sidecars, and one calls the other. A connection between them serves twenty requests, so
// that there are always new ones.
const rotated = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [%[1]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: main, protocol: HTTP}]
  endpoints: [{address: 127.1.0.2, ports: {main: %[3]d}, serviceAccount: web, labels: {app: web}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: %[1]s
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 20}}}
---
# Both proxies run on one machine, where only one of them can listen for the service.
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{hosts: [~/*]}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/app]}}]}]
`

// TestRotation: certificates of two sidecars are renewed, and the root of the mesh is replaced, under 500 requests per second over ever new
// connections that require mutual TLS. No request fails. ROTATE_FOR is how long it takes; an eighth of that, at most 20 seconds, is the lifetime of a
// certificate.
func TestRotation(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("ROTATE_FOR"), "40s"))
	if err != nil {
		t.Fatal(err)
	}
	lifetime := min(length/8, 20*time.Second)
	b := newBed(t)
	b.TLSOnly()
	// The next root is trusted when five lifetimes are left of the ten of a root, which is valid from two minutes before it is made. It signs
	// a lifetime later, and is the only one after another.
	share := 100 * 5 * lifetime / (10*lifetime + 2*time.Minute)
	b.Env = []string{
		"MAX_WORKLOAD_CERT_TTL=" + lifetime.String(), "DEFAULT_WORKLOAD_CERT_TTL=" + lifetime.String(),
		"CITADEL_SELF_SIGNED_CA_CERT_TTL=" + (10 * lifetime).String(), "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=1s",
		fmt.Sprintf("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE=%d", share),
	}
	if _, err := b.Write("web.yaml", fmt.Sprintf(rotated, webHost, b.port, b.backend.port)); err != nil {
		t.Fatal(err)
	}
	b.serve()
	web := b.ready(b.certified("web"), testbed.Node{Name: "web", IP: "127.1.0.2"})
	app := b.ready(b.certified("app"), testbed.Node{})
	b.answers()
	seen := b.watch(app, web)
	load := testbed.StartAsking(t.Context(), 10, 50, func(ctx context.Context, _ *http.Client) (string, error) {
		code, err := b.get(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return "web", err
	})
	timeout := time.NewTimer(length)
	defer timeout.Stop()
	tick := time.NewTicker(lifetime / 10)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-timeout.C:
			done = true
		case <-tick.C:
		}
		seen.look()
	}
	tally := load.Stop()
	t.Logf("%d requests in %v; %s", tally.Total(), length, seen)
	if tally.Failures > 0 || tally.Total() < int(length/time.Second)*400 {
		t.Errorf("%d of %d requests failed, the first at %v", tally.Failures, tally.Total(), tally.First)
	}
	if len(seen.first) != 1 || len(seen.roots) < 2 || maps.Equal(seen.first, seen.current) {
		t.Errorf("the root of the mesh was not replaced by another one: first %v, now %v", seen.first, seen.current)
	}
	for _, a := range seen.agents {
		if n := len(seen.leaves[a.Node.Name]); n < int(length/lifetime) {
			t.Errorf("%s has had %d certificates, want %d at least", a.Node.Name, n, length/lifetime)
		}
	}
}

// watched are the certificates that Envoys have had.
type watched struct {
	*bed
	agents []*testbed.Agent
	leaves map[string]map[string]bool // the serial numbers of workloads' certificates, by proxy
	roots  map[string]bool            // the serial numbers of roots
	// first are the roots with which they began, and current are the roots that they have now.
	first, current map[string]bool
}

func (b *bed) watch(agents ...*testbed.Agent) *watched {
	w := &watched{bed: b, agents: agents, leaves: map[string]map[string]bool{}, roots: map[string]bool{}}
	w.look()
	w.first = w.current
	return w
}

func (w *watched) String() string {
	counts := []string{fmt.Sprintf("roots: %d", len(w.roots))}
	for _, a := range w.agents {
		counts = append(counts, fmt.Sprintf("certificates of %s: %d", a.Node.Name, len(w.leaves[a.Node.Name])))
	}
	return strings.Join(counts, ", ")
}

// look notes which certificates the Envoys have now.
func (w *watched) look() {
	w.Helper()
	w.current = map[string]bool{}
	for _, a := range w.agents {
		page, err := a.Admin(w.Context(), "/certs")
		if err != nil {
			w.Fatal(err)
		}
		type certificate struct {
			Serial string `json:"serial_number"`
		}
		var certs struct {
			Certificates []struct {
				CA    []certificate `json:"ca_cert"`
				Chain []certificate `json:"cert_chain"`
			}
		}
		if err := json.Unmarshal([]byte(page), &certs); err != nil {
			w.Fatal(err)
		}
		for _, c := range certs.Certificates {
			for _, root := range c.CA {
				w.current[root.Serial] = true
			}
			if len(c.Chain) == 0 {
				continue
			}
			if w.leaves[a.Node.Name] == nil {
				w.leaves[a.Node.Name] = map[string]bool{}
			}
			w.leaves[a.Node.Name][c.Chain[0].Serial] = true
		}
	}
	maps.Copy(w.roots, w.current)
}

// TestRotationCost: the control plane recomputes nothing when the certificate of a proxy is renewed.
func TestRotationCost(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	b.serve()
	o := b.certified("web")
	o.Env = append(o.Env, "SECRET_TTL=1m", "SECRET_GRACE_PERIOD_RATIO=0.94") // a certificate is renewed after three seconds
	b.ready(o, testbed.Node{})
	b.answers()
	issued := func() float64 { return b.total("citadel_server_success_cert_issuance_count") }
	first := issued()
	b.await("a renewal", func(context.Context) error { return atLeast(issued(), first+1) })
	cells := b.total("pilot_cells_run_total")
	b.await("two more renewals", func(context.Context) error { return atLeast(issued(), first+3) })
	if now := b.total("pilot_cells_run_total"); now != cells {
		t.Errorf("two renewals have run %v cells", now-cells)
	}
	b.web(1) // an edit runs some, so that is what the metric counts
	b.await("cells of an edit", func(context.Context) error { return atLeast(b.total("pilot_cells_run_total"), cells+1) })
}

func atLeast(n, want float64) error {
	if n < want {
		return fmt.Errorf("%v, not %v", n, want)
	}
	return nil
}

// total is the sum of all values of a metric of the control plane.
func (b *bed) total(metric string) (sum float64) {
	b.Helper()
	text, err := b.Get(b.Context(), "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, metric+" ") && !strings.HasPrefix(line, metric+"{") {
			continue
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += v
	}
	return sum
}
