package boot

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cases are the bootstraps in testdata, by file. The tests of the whole agent, which run
// Envoy, check that it accepts each of them.
func cases(t *testing.T) map[string]Config {
	t.Helper()
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop", "LABELS": map[string]any{"app": "web"}})
	if err != nil {
		t.Fatal(err)
	}
	usual := Config{
		Node: &corev3.Node{
			Id: "sidecar~10.1.1.1~web-1.shop~shop.svc.cluster.local", Cluster: "web.shop", Metadata: metadata,
			Locality: &corev3.Locality{Region: "r1", Zone: "z1"},
		},
		Relay: "./etc/istio/proxy/XDS", AdminPort: 15000, StatusPort: 15020, HealthPort: 15021, MetricsPort: 15090,
		SecretsSocket: "./var/run/secrets/workload-spiffe-uds/socket",
	}
	with := func(change func(*Config)) Config {
		c := usual
		change(&c)
		return c
	}
	return map[string]Config{
		"usual": usual,
		"sotw":  with(func(c *Config) { c.SotW = true }),
		"ipv6":  with(func(c *Config) { c.IPv6 = true }),
		"local": with(func(c *Config) {
			c.LocalMetrics, c.DualStack, c.SecureMetricsPort, c.SecureMergedMetricsPort = true, true, 15091, 15092
		}),
		"bare": with(func(c *Config) { c.StatusPort, c.HealthPort, c.MetricsPort = 0, 0, 0 }),
		"statistics": with(func(c *Config) {
			c.Stats = Stats{
				Prefixes: []string{"cluster.outbound"}, Suffixes: []string{"upstream_rq_timeout"}, Regexes: []string{`^http\..*_5xx$`},
				Buckets: map[string][]float64{"cluster.": {1, 10, 100}, "cluster.outbound": {0.5, 5, 50}},
			}
		}),
		"options": with(func(c *Config) {
			c.OutlierLog = "/dev/stdout"
			c.Runtime = map[string]string{
				"re2.max_program_size.error_level": "", "envoy.reloadable_features.http_reject_path_with_fragment": "true",
				"upstream.healthy_panic_threshold": "20",
			}
		}),
	}
}

func TestGoldens(t *testing.T) {
	all := cases(t)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			if err := c.Message().ValidateAll(); err != nil {
				t.Error(err)
			}
			got, err := c.JSON()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("differs from %s; go test -update rewrites it. Got:\n%s", file, got)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".json")
	}
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, files) {
		t.Errorf("testdata has %q, the cases are %q", files, names)
	}
}

// TestBins: the number of bins is for the metrics of the mesh, with or without buckets of their own. Envoy uses the first entry that matches.
func TestBins(t *testing.T) {
	for _, c := range []struct {
		stats Stats
		want  string
	}{
		{Stats{Bins: 10}, "istio_ [] 10"},
		{Stats{Bins: 10, Buckets: map[string][]float64{"http.": {1}, "istio_request_": {2}}}, "istio_request_ [2] 10, http. [1] 0, istio_ [] 10"},
		{Stats{Bins: 10, Buckets: map[string][]float64{"istio": {1}, "istio_r": {2}}}, "istio_r [2] 10, istio [1] 10"},
		{Stats{Buckets: map[string][]float64{"istio_": {1}}}, "istio_ [1] 0"},
	} {
		var got []string
		for _, b := range c.stats.buckets() {
			got = append(got, fmt.Sprintf("%s %v %d", b.GetMatch().GetPrefix(), b.GetBuckets(), b.GetBins().GetValue()))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%v: %s, want %s", c.stats, text, c.want)
		}
	}
}

// TestSameBytes: a bootstrap has the same bytes each time, although the encoder varies its output.
func TestSameBytes(t *testing.T) {
	c := cases(t)["options"]
	first, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := c.JSON()
		if err != nil || string(again) != string(first) {
			t.Fatalf("another result: %v\n%s", err, again)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{AdminPort: 15000}, ""},
		{Config{AdminPort: 15000, StatusPort: 15020, HealthPort: 15021, MetricsPort: 15090}, ""},
		{Config{StatusPort: 15020}, "Envoy's admin interface has no port"},
		{Config{AdminPort: 15000, HealthPort: 15021}, "enable both or disable both"},
		{Config{AdminPort: 15000, StatusPort: 15000}, "port 15000 is set for both Envoy's admin interface and the agent's status server"},
		{Config{AdminPort: 15000, StatusPort: 15020, HealthPort: 1, MetricsPort: 1}, "port 1 is set for both"},
	} {
		err := c.config.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}
