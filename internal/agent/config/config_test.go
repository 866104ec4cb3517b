package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/agent/platform"
	"github.com/pilotmesh/pilot/internal/agent/scrape"
)

// load reads settings as the program does, from files below a directory.
func load(t *testing.T, files map[string]string, environ []string, args ...string) (*Settings, error) {
	t.Helper()
	s := New(append([]string{"INSTANCE_IP=127.1.0.1", "POD_NAME=web-1", "POD_NAMESPACE=shop"}, environ...))
	s.dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	s.Flags(fs)
	s.flags.meshConfig = filepath.Join(s.dir, meshFile)
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	return s, s.Load()
}

func mustLoad(t *testing.T, files map[string]string, environ []string, args ...string) *Settings {
	t.Helper()
	s, err := load(t, files, append([]string{"PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010"}, environ...), args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDefaults(t *testing.T) {
	s := mustLoad(t, nil, nil)
	got := []any{
		s.Role, s.Name, s.Namespace, s.Domain, s.ClusterID, s.Addresses, s.Proxy.DiscoveryAddress, s.Proxy.StatusPort, s.Proxy.ProxyAdminPort,
		s.HealthPort, s.MetricsPort, s.SotW, s.EnvoyLogLevel, s.EnvoyComponentLogLevel, s.Restarts, s.LogLevels,
		s.Proxy.DrainDuration.AsDuration(), s.Proxy.TerminationDrainDuration.AsDuration(), s.MinDrain, s.ExitOnZeroConnections, s.IPv6Only(),
	}
	want := []any{
		"sidecar", "web-1", "shop", "shop.svc.cluster.local", "Kubernetes", []string{"127.1.0.1"}, "10.0.0.1:15010", int32(15020), int32(15000),
		uint32(15021), uint32(15090), false, "warning", "misc:error", 10, "info",
		45 * time.Second, 5 * time.Second, 5 * time.Second, false, false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNearerWins: defaults, mesh, PROXY_CONFIG, annotation, flags; an explicit zero counts.
func TestNearerWins(t *testing.T) {
	files := map[string]string{
		meshFile: "defaultConfig:\n  discoveryAddress: mesh:1\n  proxyAdminPort: 1\n  statusPort: 1\n  drainDuration: 1s\n  runtimeValues: {a: mesh, b: mesh}\nrootNamespace: of-no-concern\n",
		annotationsFile: `proxy.istio.io/config="statusPort: 0\nterminationDrainDuration: 3s\nruntimeValues: {c: pod}\n"
other="x"
`,
		labelsFile: `app="web"` + "\n\n" + `quoted="a\"b=c"` + "\n",
	}
	s, err := load(t, files, []string{"PROXY_CONFIG=proxyAdminPort: 2\nstatusPort: 2\ndiscoveryAddress: env:2\nterminationDrainDuration: 2s\nruntimeValues: {b: env}\n"},
		"--discoveryAddress=flag:3", "--configPath=/tmp/x")
	if err != nil {
		t.Fatal(err)
	}
	p := s.Proxy
	got := []any{p.DiscoveryAddress, p.ProxyAdminPort, p.StatusPort, p.DrainDuration.AsDuration(), p.TerminationDrainDuration.AsDuration(), p.RuntimeValues, p.ConfigPath, s.Labels}
	want := []any{
		"flag:3", int32(2), int32(0), time.Second, 3 * time.Second, map[string]string{"a": "mesh", "b": "env", "c": "pod"}, "/tmp/x",
		map[string]string{"app": "web", "quoted": `a"b=c`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMetadata(t *testing.T) {
	s := mustLoad(t, nil, []string{
		"ISTIO_META_NETWORK=n1", "ISTIO_META_CLUSTER_ID=east", `ISTIO_METAJSON_LABELS={"app":"vm"}`, `ISTIO_METAJSON_X={"A":1,"B":{"c":true}}`,
		"PROXY_CONFIG={discoveryAddress: 'x:1', proxyMetadata: {ISTIO_META_NETWORK: proxy, ISTIO_META_IDLE_TIMEOUT: 1h, EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true'}}",
	})
	want := map[string]any{
		"NETWORK": "n1", "CLUSTER_ID": "east", "IDLE_TIMEOUT": "1h", "LABELS": map[string]any{"app": "vm"}, "A": 1.0, "B": map[string]any{"c": true},
	}
	if diff := cmp.Diff(want, s.Metadata); diff != "" {
		t.Error(diff)
	}
	if s.ClusterID != "east" || !s.ExitOnZeroConnections {
		t.Errorf("cluster %q, exit on zero %v", s.ClusterID, s.ExitOnZeroConnections)
	}
}

// TestNamespace checks where the namespace of the proxy's identity comes from, and that the metadata agrees with it unless
// the environment sets both.
func TestNamespace(t *testing.T) {
	for _, c := range []struct {
		environ, args []string
		want          []any // namespace, domain, namespace in the metadata
	}{
		{nil, nil, []any{"shop", "shop.svc.cluster.local", nil}},
		{[]string{"POD_NAMESPACE="}, nil, []any{"default", "default.svc.cluster.local", nil}},
		{[]string{"POD_NAMESPACE="}, []string{"--namespace=a"}, []any{"a", "a.svc.cluster.local", nil}},
		{nil, []string{"--namespace=a"}, []any{"a", "a.svc.cluster.local", nil}},
		{[]string{"POD_NAMESPACE=", "ISTIO_META_NAMESPACE=b"}, nil, []any{"b", "b.svc.cluster.local", "b"}},
		{[]string{"ISTIO_META_NAMESPACE=b"}, nil, []any{"shop", "shop.svc.cluster.local", "b"}},
		{[]string{"ISTIO_META_NAMESPACE=b"}, []string{"--namespace=a"}, []any{"a", "a.svc.cluster.local", nil}},
	} {
		s := mustLoad(t, nil, c.environ, c.args...)
		if diff := cmp.Diff(c.want, []any{s.Namespace, s.Domain, s.Metadata["NAMESPACE"]}); diff != "" {
			t.Errorf("%q %q: %s", c.environ, c.args, diff)
		}
	}
}

func TestSwitches(t *testing.T) {
	override := filepath.Join(t.TempDir(), "override.yaml")
	if err := os.WriteFile(override, []byte("admin: {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustLoad(t, nil, []string{
		"ISTIO_DELTA_XDS=false", "ENVOY_STATUS_PORT=0", "ENVOY_PROMETHEUS_PORT=9", "MINIMUM_DRAIN_DURATION=7s", "ISTIO_BOOTSTRAP_OVERRIDE=" + override, "ENVOY=/e",
	}, "--concurrency=3", "--envoyStatusPort=", "--id=a.b")
	got := []any{s.SotW, s.HealthPort, s.MetricsPort, s.MinDrain, s.Override, s.EnvoyFromEnv, s.Proxy.Concurrency.GetValue(), s.ID}
	want := []any{true, uint32(0), uint32(9), 7 * time.Second, "admin: {}", "/e", int32(3), "a.b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := mustLoad(t, nil, []string{"ISTIO_DELTA_XDS=true"}, "--sotw"); !s.SotW {
		t.Error("a flag gives way to the environment")
	}
}

// TestWasm checks the settings for fetching modules.
func TestWasm(t *testing.T) {
	day := Wasm{Expiry: 24 * time.Hour, Purge: time.Hour, Silence: 15 * time.Second, Retries: 5}
	if diff := cmp.Diff(day, mustLoad(t, nil, nil).Wasm); diff != "" {
		t.Error(diff)
	}
	got := mustLoad(t, nil, []string{
		"WASM_MODULE_EXPIRY=1h", "WASM_PURGE_INTERVAL=1m", "WASM_HTTP_REQUEST_TIMEOUT=1s", "WASM_HTTP_REQUEST_MAX_RETRIES=0",
		"WASM_INSECURE_REGISTRIES=localhost:5000, *", "BLOCKED_CIDRS_IN_WASM_FETCH=10.1.2.3/8",
	}).Wasm
	want := Wasm{Expiry: time.Hour, Purge: time.Minute, Silence: time.Second, Insecure: []string{"localhost:5000", "*"}, Blocked: got.Blocked}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || fmt.Sprint(got.Blocked) != "[10.0.0.0/8]" {
		t.Error(diff, got.Blocked)
	}
}

func TestMistakes(t *testing.T) {
	const address = "PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010\n"
	for _, c := range []struct {
		environ, args []string
		want          string
	}{
		{[]string{"DNS_PROXY_ADDR=127.0.0.1"}, nil, `DNS_PROXY_ADDR: "127.0.0.1" is not host:port`},
		{[]string{"DNS_PROXY_ADDR=127.0.0.1:0"}, nil, `DNS_PROXY_ADDR: "127.0.0.1:0" is not host:port`},
		{[]string{"DNS_PROXY_ADDR=somewhere:15053"}, nil, `DNS_PROXY_ADDR: the host "somewhere" is neither`},
		{[]string{"DNS_FORWARD_TIMEOUT=5"}, nil, `DNS_FORWARD_TIMEOUT: "5" is not a duration`},
		{[]string{"DNS_FORWARD_PARALLEL=both"}, nil, `DNS_FORWARD_PARALLEL: "both" is neither`},
		{[]string{"ISTIO_META_DNS_CAPTURE=ALL"}, nil, `ISTIO_META_DNS_CAPTURE: "ALL" is neither true nor false`},
		{[]string{"WASM_MODULE_EXPIRY=soon"}, nil, `WASM_MODULE_EXPIRY: "soon" is not a duration of at least 1s, such as 24h`},
		{[]string{"WASM_HTTP_REQUEST_MAX_RETRIES=-1"}, nil, `WASM_HTTP_REQUEST_MAX_RETRIES: "-1" is not a number up to 100`},
		{[]string{"WASM_INSECURE_REGISTRIES=http://a"}, nil, `WASM_INSECURE_REGISTRIES: "http://a" is not a host`},
		{[]string{"BLOCKED_CIDRS_IN_WASM_FETCH=10.0.0.1,x"}, nil, `BLOCKED_CIDRS_IN_WASM_FETCH: "10.0.0.1" is not a range`},
		{[]string{"SECRET_TTL=soon"}, nil, `SECRET_TTL: "soon" is not a duration`},
		{[]string{"SECRET_GRACE_PERIOD_RATIO=1"}, nil, `SECRET_GRACE_PERIOD_RATIO: "1" is not a number between`},
		{[]string{"WORKLOAD_RSA_KEY_SIZE=512"}, nil, `WORKLOAD_RSA_KEY_SIZE: "512" is not a size`},
		{[]string{"ECC_SIGNATURE_ALGORITHM=RSA"}, nil, `ECC_SIGNATURE_ALGORITHM: "RSA" is not ECDSA`},
		{[]string{"JWT_POLICY=none"}, nil, `JWT_POLICY: "none" is neither`},
		{[]string{"CA_ADDR=ca"}, nil, `CA_ADDR: "ca" is not host:port`},
		{[]string{"CA_PROVIDER=GoogleCAS"}, nil, `CA_PROVIDER: "GoogleCAS" is not supported`},
		{[]string{address + "statusport: 1"}, nil, "PROXY_CONFIG: line 2: statusport"},
		{[]string{address + "statusPort: many"}, nil, "PROXY_CONFIG: line 2: statusPort must be a whole number"},
		{[]string{"PROXY_CONFIG={"}, nil, "PROXY_CONFIG: line 1: not well-formed YAML"},
		{[]string{address + "statusPort: 70000"}, nil, "statusPort: 70000 is not a port"},
		{[]string{address, "WORKLOAD_IDENTITY_SOCKET_FILE=/run/x"}, nil, `WORKLOAD_IDENTITY_SOCKET_FILE: "/run/x" is a path; write only the file name`},
		{[]string{address, "ISTIO_DELTA_XDS=maybe"}, nil, `ISTIO_DELTA_XDS: "maybe" is neither true nor false`},
		{[]string{address, "ENVOY_STATUS_PORT=x"}, nil, `ENVOY_STATUS_PORT (--envoyStatusPort): "x" is not a port`},
		{[]string{address, "MINIMUM_DRAIN_DURATION=soon"}, nil, `MINIMUM_DRAIN_DURATION: "soon" is not a duration`},
		{[]string{address, "ISTIO_METAJSON_X=[]"}, nil, `ISTIO_METAJSON_X: "[]" is not a JSON object`},
		{[]string{address, "INSTANCE_IP=localhost"}, nil, `INSTANCE_IP: "localhost" is not an IP address`},
		{[]string{address, "POD_NAMESPACE=a.b"}, nil, `POD_NAMESPACE: "a.b" is not a namespace`},
		{[]string{address}, []string{"--namespace=a.b"}, `--namespace: "a.b" is not a namespace`},
		{[]string{address, "POD_NAMESPACE=", "ISTIO_META_NAMESPACE=a.b"}, nil, `ISTIO_META_NAMESPACE: "a.b" is not a namespace`},
		{[]string{address, "POD_NAME=a~b"}, nil, `POD_NAME: "a~b" contains a character`},
		{[]string{address, "ISTIO_META_IDLE_TIMEOUT=long"}, nil, `ISTIO_META_IDLE_TIMEOUT: "long" is not a duration such as 1h`},
		{[]string{address, "ISTIO_BOOTSTRAP_OVERRIDE=/no/such"}, nil, "ISTIO_BOOTSTRAP_OVERRIDE: open /no/such"},
		{nil, []string{"--discoveryAddress=10.0.0.1"}, `discoveryAddress: "10.0.0.1" is not host:port`},
		{[]string{address}, []string{"--meshConfig=/no/such"}, "--meshConfig: open /no/such"},
		{[]string{address}, []string{"--concurrency=-1"}, "--concurrency: -1 is not between 0"},
		{[]string{address}, []string{"--concurrency=x"}, `invalid argument "x" for "--concurrency"`},
		{[]string{address}, []string{"--restarts=-1"}, "--restarts: -1 is negative"},
		{[]string{address}, []string{"--statusPort=x"}, "--statusPort: "},
		{[]string{address}, []string{"--drainDuration=x"}, "--drainDuration: "},
		{[]string{address}, []string{"--drainDuration=-1s"}, "drainDuration: -1s is negative"},
		{[]string{address}, []string{"--controlPlaneAuthPolicy=x"}, `"x" is neither NONE nor MUTUAL_TLS`},
		{[]string{address}, []string{"--proxyLogLevel=loud"}, `--proxyLogLevel: "loud" is not a log level`},
		{[]string{address}, []string{"--log_output_level=loud"}, `--log_output_level: "loud" is not a level`},
		{[]string{address}, []string{"--statsPort=1"}, "unknown flag: --statsPort"},
	} {
		fails(t, c.environ, c.args, c.want)
	}
}

// fails checks that settings are refused with a reason.
func fails(t *testing.T, environ, args []string, want string) {
	t.Helper()
	if _, err := load(t, nil, environ, args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%q %q: %v, want %q", environ, args, err, want)
	}
}

// TestBootstrapMistakes: mistakes in settings of the bootstrap are reported.
func TestBootstrapMistakes(t *testing.T) {
	const address = "PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010\n"
	for _, c := range []struct {
		environ, args []string
		want          string
	}{
		{[]string{address, "DISABLE_ENVOY=true"}, []string{"--hotRestart"}, "DISABLE_ENVOY: there is no Envoy that a hot restart could replace"},
		{[]string{address}, []string{"--templateFile=/no/such"}, "--templateFile: open /no/such"},
		{[]string{address, "ISTIO_BOOTSTRAP=/dev/null"}, nil, "ISTIO_BOOTSTRAP: /dev/null is empty"},
		{[]string{address}, []string{"--zipkinAddress=zipkin"}, `tracing.zipkin.address: "zipkin" is not host:port`},
		{[]string{address}, []string{"--statsdUdpAddress=statsd:0"}, `statsdUdpAddress: "statsd:0" is not host:port`},
		{[]string{address + "envoyMetricsService: {address: m}"}, nil, `envoyMetricsService.address: "m" is not host:port`},
		{[]string{address + "envoyAccessLogService: {address: 'a:1', tlsSettings: {mode: SIMPLE, credentialName: c}}"}, nil, "envoyAccessLogService.tlsSettings.credentialName: the bootstrap can refer to files only"},
		{[]string{address + "envoyAccessLogService: {address: 'a:1', tlsSettings: {mode: MUTUAL}}"}, nil, "envoyAccessLogService.tlsSettings: MUTUAL needs clientCertificate and privateKey"},
		{[]string{address + "runtimeValues: {overload.global_downstream_max_connections: many}"}, nil, `runtimeValues.overload.global_downstream_max_connections: "many" is not a number of connections`},
	} {
		fails(t, c.environ, c.args, c.want)
	}
}

// TestConnectionLimit: connectionSettings limit the connections of all listeners, unless runtimeValues do.
func TestConnectionLimit(t *testing.T) {
	const settings = "PROXY_CONFIG={discoveryAddress: 'x:1', connectionSettings: {globalDownstreamConnectionLimit: 7}"
	for environ, want := range map[string]uint32{
		settings + "}": 7, settings + ", runtimeValues: {overload.global_downstream_max_connections: '9'}}": 9, "PROXY_CONFIG={discoveryAddress: 'x:1'}": 0,
	} {
		s, err := load(t, nil, []string{environ})
		if err != nil || s.MaxConnections != want {
			t.Errorf("%s: %v, %d connections, not %d", environ, err, s.MaxConnections, want)
		}
	}
}

// TestAllMistakesAtOnce: one start reports all mistakes.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := load(t, map[string]string{labelsFile: "app=web", meshFile: "defaultConfig: {concurrency: bad}"}, []string{"PROXY_CONFIG=[]", "ISTIO_DELTA_XDS=x"}, "--restarts=-1")
	for _, part := range []string{labelsFile + `: line 1 is not name="value"`, meshFile + ": line 1: defaultConfig.concurrency", "PROXY_CONFIG: line 1", "ISTIO_DELTA_XDS", "--restarts"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not name %s", err, part)
		}
	}
}

// TestTLS: the port decides whether TLS is used, unless a setting does.
func TestTLS(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, true}, // Istio's default, istiod.istio-system.svc:15012
		{[]string{"--discoveryAddress=x:15012"}, true},
		{[]string{"--discoveryAddress=x:15010"}, false},
		{[]string{"--discoveryAddress=x:15012", "--controlPlaneAuthPolicy=NONE"}, false},
		{[]string{"--discoveryAddress=x:9000", "--controlPlaneAuthPolicy=MUTUAL_TLS"}, true},
	} {
		s, err := load(t, nil, nil, c.args...)
		if err != nil || s.TLS != c.want || (s.Certificates.Authority != "") != c.want {
			t.Errorf("%q: TLS %v, authority %q, %v", c.args, s.TLS, s.Certificates.Authority, err)
		}
	}
}

func TestPlaintextByChoice(t *testing.T) {
	s, err := load(t, nil, nil, "--discoveryAddress=x:15012", "--controlPlaneAuthPolicy=NONE")
	if err != nil || s.Proxy.ControlPlaneAuthPolicy != meshv1alpha1.AuthenticationPolicy_NONE {
		t.Errorf("got %v, %v", s.Proxy.ControlPlaneAuthPolicy, err)
	}
}

// TestRemarks: settings without effect are reported, and only they.
func TestRemarks(t *testing.T) {
	const plaintext = "xDS to 10.0.0.1:15010 uses neither encryption nor authentication; name the control plane's port for TLS, such as 10.0.0.1:15012"
	for _, c := range []struct {
		environ, args []string
		want          []string
	}{
		{nil, []string{"--stsPort=0", "--log_caller=x", "--profiling", "--controlPlaneBootstrap=false"}, []string{
			"--log_caller=x has no effect: messages name the object, not a line of code",
			"--profiling=true has no effect: the agent serves no profiles"}},
		{[]string{"PROXY_CONFIG={discoveryAddress: '10.0.0.1:15010', ofTomorrow: {deep: 1}}"}, nil, []string{
			"PROXY_CONFIG: line 1: ofTomorrow unknown field: ignored; it may be newer than this version"}},
		{[]string{"CA_ADDR=ca:15012", "ISTIO_KUBE_APP_PROBERS={}", "ISTIO_META_DNS_CAPTURE=false"}, nil, nil},
		{[]string{`ISTIO_KUBE_APP_PROBERS={"/app-health/a/livez":{"tcpSocket":{"port":1,"host":"10.9.9.9"}}}`}, []string{"--statusPort=0"}, []string{
			`ISTIO_KUBE_APP_PROBERS has no effect: there is no status server (--statusPort)`,
			`ISTIO_KUBE_APP_PROBERS: /app-health/a/livez: the host "10.9.9.9" has no effect: only the workload itself is called`}},
		{[]string{`ISTIO_PROMETHEUS_ANNOTATIONS={"targets":[{"port":"16000"},{"port":"15021"},{"port":"8080"}]}`}, []string{"--proxyAdminPort=16000"}, []string{
			`ISTIO_PROMETHEUS_ANNOTATIONS: the target 15021/metrics has no effect: Envoy's listener for probes has that port; set prometheus.io/port to the application's`,
			`ISTIO_PROMETHEUS_ANNOTATIONS: the target 16000/metrics has no effect: Envoy's admin interface has that port; set prometheus.io/port to the application's`}},
		{nil, []string{"--stsPort=15463", "--tokenManagerPlugin=GoogleTokenExchange"}, []string{
			"--stsPort has no effect: set STS_TOKEN_ENDPOINT to the URL of the token service, such as https://sts.example.com/token",
			"--tokenManagerPlugin=GoogleTokenExchange has no effect: tokens are exchanged at the service that STS_TOKEN_ENDPOINT names"}},
		{[]string{"STS_TOKEN_ENDPOINT=https://a/b"}, nil, []string{"STS_TOKEN_ENDPOINT has no effect: no port is set for the token exchange (--stsPort)"}},
		{[]string{"CREDENTIAL_FETCHER_TYPE=x"}, nil, []string{"CREDENTIAL_FETCHER_TYPE has no effect: tokens are read from a file (--tokenFile)"}},
		{[]string{"ISTIO_META_DNS_CAPTURE=true", "DNS_PROXY_ADDR=127.0.0.1:53"}, nil, nil},
		{[]string{"DNS_PROXY_ADDR=127.0.0.1:53"}, nil, []string{"DNS_PROXY_ADDR has no effect: the agent does not answer DNS queries; set ISTIO_META_DNS_CAPTURE=true"}},
		{[]string{"ISTIO_META_OWNER=x", "ISTIO_META_HTTP10=1", "ISTIO_META_IDLE_TIMEOUT=1h", "ISTIO_META_APP=y"}, nil, []string{
			"ISTIO_META_APP: this metadata is sent to the control plane, but has no effect yet"}},
		{[]string{"ISTIO_META_HTTP_PROXY_PORT=3128", "ISTIO_META_ENABLE_HBONE=false", "ISTIO_META_UNPRIVILEGED_POD=true"}, nil, []string{
			"ISTIO_META_HTTP_PROXY_PORT has no effect: set proxyHttpPort in the mesh settings, or a port of the protocol HTTP_PROXY in the egress of a Sidecar"}},
		{nil, []string{"--dnsRefreshRate=1s"}, []string{"--dnsRefreshRate=1s has no effect: the addresses of the control plane are looked up with each connection"}},
		{[]string{"PROXY_CONFIG={discoveryAddress: '10.0.0.1:15010', tracing: {zipkin: {address: 'z:1'}}, extraStatTags: [a], gatewayTopology: {numTrustedProxies: 1}}"}, nil, []string{
			"PROXY_CONFIG: extraStatTags has no effect: the filter that adds such tags is not part of standard Envoy",
			"tracing.zipkin.address: spans are sent only for listeners that ask for it, and listeners from Pilot's control plane do not yet"}},
	} {
		got := slices.DeleteFunc(slices.Clone(mustLoad(t, nil, c.environ, c.args...).Warnings()), func(r string) bool { return r == plaintext })
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
			t.Errorf("%q %q: %s", c.environ, c.args, diff)
		}
	}
	if !slices.Contains(mustLoad(t, nil, nil).Warnings(), plaintext) {
		t.Error("nobody is told that xDS is in plaintext")
	}
}

// TestAddresses: with no given address, or with one of the host, all addresses of the host are used; another address is used alone.
func TestAddresses(t *testing.T) {
	host := func(list ...string) func() ([]string, error) { return func() ([]string, error) { return list, nil } }
	two := host("10.0.0.5", "fd00::5", "192.168.7.5")
	broken := func() ([]string, error) { return nil, errors.New("no netlink") }
	var many []string
	for n := range 100 {
		many = append(many, fmt.Sprintf("10.1.0.%d", n+1))
	}
	for _, c := range []struct {
		given string
		host  func() ([]string, error)
		want  string
	}{
		{"", two, "10.0.0.5 fd00::5 192.168.7.5"},
		{"192.168.7.5", two, "192.168.7.5 10.0.0.5 fd00::5"},
		{"10.0.0.5,203.0.113.1", two, "10.0.0.5 203.0.113.1 fd00::5 192.168.7.5"},
		{"203.0.113.1", two, "203.0.113.1"},
		{"127.1.0.7, ::1", two, "127.1.0.7 ::1"},
		{"203.0.113.1", broken, "203.0.113.1"},
		{"", broken, "the addresses of the host cannot be read: no netlink"},
		{"", host(), "the host has only loopback addresses"},
		{"localhost", two, `"localhost" is not an IP address`},
		{"", host(many...), strings.Join(many[:maxAddresses], " ")},
	} {
		list, err := addresses(c.given, c.host)
		got := strings.Join(list, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: %s, want %s", c.given, got, c.want)
		}
	}
	if list, err := hostAddresses(); err != nil || slices.Contains(list, "127.0.0.1") {
		t.Errorf("of this host: %q, %v", list, err)
	}
	if (&Settings{Addresses: []string{"fd00::1"}}).IPv6Only() != true {
		t.Error("fd00::1 counts as IPv4")
	}
}

// TestFlagsHaveHelp: every flag has a description.
func TestFlagsHaveHelp(t *testing.T) {
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	New(nil).Flags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}

// TestApplication: probes call the workload's first address, as the kubelet does, unless the settings select localhost.
func TestApplication(t *testing.T) {
	const probes = `ISTIO_KUBE_APP_PROBERS={"/app-health/a/livez":{"grpc":{"port":1}}}`
	if a := mustLoad(t, nil, []string{probes}).Application; a.Address != "127.1.0.1" || a.Probes["/app-health/a/livez"].GRPC.Port != 1 {
		t.Errorf("%+v", a)
	}
	if a := mustLoad(t, nil, []string{probes, "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION=true"}).Application; a.Address != "localhost" {
		t.Errorf("%+v", a)
	}
	if a := mustLoad(t, nil, []string{`ISTIO_PROMETHEUS_ANNOTATIONS={"port":"8080"}`}).Application; !slices.Equal(a.Targets, []scrape.Target{{Port: 8080, Path: "/metrics"}}) {
		t.Errorf("%+v", a)
	}
	_, err := load(t, nil, []string{"ISTIO_PROMETHEUS_ANNOTATIONS=x", "ISTIO_KUBE_APP_PROBERS=x", "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION=x"})
	if err == nil || !strings.Contains(err.Error(), "ISTIO_KUBE_APP_PROBERS: it is not") || !strings.Contains(err.Error(), "ISTIO_PROMETHEUS_ANNOTATIONS: it is not") || !strings.Contains(err.Error(), "DESTINATION: \"x\" is neither") {
		t.Error(err)
	}
}

// TestCloud: the cloud comes from CLOUD_PLATFORM, and in Kubernetes there is none.
func TestCloud(t *testing.T) {
	for text, want := range map[string]platform.Cloud{
		"": "", "CLOUD_PLATFORM=aws": platform.Amazon, "CLOUD_PLATFORM=none": platform.None, "KUBERNETES_SERVICE_HOST=10.96.0.1": platform.None,
		"PROXY_CONFIG={proxyMetadata: {CLOUD_PLATFORM: gcp}}": platform.Google,
	} {
		if s := mustLoad(t, nil, []string{text}); s.Cloud != want {
			t.Errorf("%s: %s, want %s", text, s.Cloud, want)
		}
	}
	if _, err := load(t, nil, []string{"CLOUD_PLATFORM=moon"}); err == nil || !strings.Contains(err.Error(), `CLOUD_PLATFORM: "moon" is none of aws, gcp, azure and none`) {
		t.Error(err)
	}
}

func TestDebugPort(t *testing.T) {
	for text, want := range map[string]uint16{
		"": 15004, "PROXY_XDS_DEBUG_VIA_AGENT=false": 0, "PROXY_XDS_DEBUG_VIA_AGENT_PORT=16004": 16004, "PROXY_XDS_DEBUG_VIA_AGENT_PORT=0": 0,
	} {
		if s := mustLoad(t, nil, []string{text}); s.DebugPort != want {
			t.Errorf("%s: %d, want %d", text, s.DebugPort, want)
		}
	}
	if _, err := load(t, nil, []string{"PROXY_XDS_DEBUG_VIA_AGENT_PORT=x"}); err == nil || !strings.Contains(err.Error(), `PROXY_XDS_DEBUG_VIA_AGENT_PORT: "x" is not a port`) {
		t.Error(err)
	}
}

func TestSTS(t *testing.T) {
	s := mustLoad(t, nil, []string{"STS_TOKEN_ENDPOINT=https://a/b", "STS_ROOT_CA=/c"}, "--stsPort=15463")
	if want := (STS{Port: 15463, Endpoint: "https://a/b", Roots: "/c"}); s.STS != want {
		t.Errorf("%+v, want %+v", s.STS, want)
	}
	_, err := load(t, nil, []string{"STS_TOKEN_ENDPOINT=http://a/b"}, "--stsPort=15463")
	if err == nil || !strings.Contains(err.Error(), "STS_TOKEN_ENDPOINT: \"http://a/b\" is neither https nor on this host") {
		t.Error(err)
	}
	if _, err := load(t, nil, nil, "--stsPort=x"); err == nil || !strings.Contains(err.Error(), "--stsPort") {
		t.Error(err)
	}
}

// TestReadiness: the probe of a WorkloadGroup is read from every source of ProxyConfig, and one that cannot work is refused.
func TestReadiness(t *testing.T) {
	const probe = "PROXY_CONFIG={discoveryAddress: 10.0.0.1:15010, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 5}}"
	s := mustLoad(t, nil, []string{probe, "ISTIO_META_AUTO_REGISTER_GROUP=vm"})
	if p := s.Application.Readiness; !p.Set() || p.Period != 5*time.Second || p.Timeout != time.Second || p.Failures != 3 {
		t.Errorf("%+v", p)
	}
	if text := strings.Join(s.Warnings(), "\n"); strings.Contains(text, "readinessProbe") || strings.Contains(text, "AUTO_REGISTER") {
		t.Error(text)
	}
	if text := strings.Join(mustLoad(t, nil, []string{probe}).Warnings(), "\n"); !strings.Contains(text, "belongs to no WorkloadGroup (ISTIO_META_AUTO_REGISTER_GROUP)") {
		t.Error(text)
	}
	fails(t, []string{"PROXY_CONFIG={readinessProbe: {tcpSocket: {port: 0}}}"}, nil, "readinessProbe: the port 0 is not between 1 and 65535")
}
