package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/mesh"
)

func noEnv(string) (string, bool) { return "", false }

// parse reads a command line as the program does.
func parse(t *testing.T, args ...string) (*Settings, error) {
	t.Helper()
	s := New(noEnv)
	fs := pflag.NewFlagSet("discovery", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	s.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	return s, s.Validate()
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	s, err := parse(t, "--configDir="+dir)
	if err != nil {
		t.Fatal(err)
	}
	s.flags = flags{}
	want := Settings{
		ConfigDir: dir, Domain: "cluster.local", Namespace: "istio-system", ClusterID: "Kubernetes",
		HTTPAddr: ":8080", MonitoringAddr: ":15014", GRPCAddr: ":15010", Profile: true,
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second, KeepaliveMaxServerConnectionAge: forever,
		ShutdownDuration: 10 * time.Second, MaxRecvMsgSize: 8 << 20, WriteTimeout: 10 * time.Second, LogLevels: "info",
	}
	if !equal(*s, want) {
		t.Errorf("got  %+v\nwant %+v", *s, want)
	}
}

func equal(a, b Settings) bool {
	a.flags, b.flags = flags{}, flags{}
	return slices.Equal(fields(a), fields(b))
}

// fields has the settings that can be compared.
func fields(s Settings) []any {
	return []any{
		s.ConfigDir, s.MeshConfig, s.Domain, s.Namespace, s.ClusterID, s.HTTPAddr, s.MonitoringAddr, s.GRPCAddr, s.Profile,
		s.DebugRemote, s.KeepaliveInterval, s.KeepaliveTimeout, s.KeepaliveMaxServerConnectionAge, s.ShutdownDuration,
		s.MinCommitInterval, s.Workers, s.MaxRecvMsgSize, s.WriteTimeout, s.LogLevels, s.LogJSON,
	}
}

func TestEnvironmentIsDefault(t *testing.T) {
	env := map[string]string{"POD_NAMESPACE": "mesh", "CLUSTER_ID": "east", "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES": "ops, tools,"}
	s := New(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if s.Namespace != "mesh" || s.ClusterID != "east" || !slices.Equal(s.DebugNamespaces, []string{"ops", "tools"}) {
		t.Errorf("namespace %q, cluster %q, debug namespaces %q", s.Namespace, s.ClusterID, s.DebugNamespaces)
	}
}

func TestLeaderElectionIsTrueOrFalse(t *testing.T) {
	for value, want := range map[string]string{"": "elects", "true": "elects", "False": "alone", "0": "alone", "no": "ENABLE_LEADER_ELECTION: \"no\" is neither"} {
		s := New(func(name string) (string, bool) { return value, name == "ENABLE_LEADER_ELECTION" })
		s.ConfigDir = t.TempDir()
		got := "alone"
		if err := s.Validate(); err != nil {
			got = err.Error()
		} else if s.LeaderElection {
			got = "elects"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mesh.yaml")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--configDir=" + dir + "/none"}, "does not exist; create it"},
		{[]string{"--configDir=" + file}, "is not a directory"},
		{[]string{"--meshConfig=" + dir + "/none"}, "--meshConfig: " + dir + "/none does not exist"},
		{[]string{"--domain=.cluster.local"}, "--domain: "},
		{[]string{"--namespace="}, "--namespace: it is empty"},
		{[]string{"--httpAddr=8080"}, `--httpAddr: "8080" is not an address`},
		{[]string{"--grpcAddr=:99999"}, `--grpcAddr: ":99999" is not an address`},
		{[]string{"--grpcAddr=:8080"}, "--grpcAddr: :8080 is also the value of --httpAddr"},
		{[]string{"--keepaliveInterval=1ms"}, "--keepaliveInterval: 1ms is too short; at least 1s"},
		{[]string{"--keepaliveMaxServerConnectionAge=soon"}, `"soon" is neither a duration such as 30m nor infinity`},
		{[]string{"--shutdownDuration=-1s"}, "--shutdownDuration: -1s is too short"},
		{[]string{"--minCommitInterval=1h"}, "--minCommitInterval: 1h0m0s is too long; at most 1m0s"},
		{[]string{"--workers=-1"}, "--workers: -1 is not between 0"},
		{[]string{"--maxRecvMsgSize=1"}, "--maxRecvMsgSize: 1 is not between"},
		{[]string{"--log_output_level=loud"}, `--log_output_level: "loud" is not a level`},
	} {
		args := c.args
		if len(args) > 0 && !strings.HasPrefix(args[0], "--configDir") {
			args = append([]string{"--configDir=" + dir}, args...)
		}
		if _, err := parse(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}

// TestAllErrorsAtOnce: users should not have to start a program five times to learn of five mistakes.
func TestAllErrorsAtOnce(t *testing.T) {
	_, err := parse(t, "--domain=", "--httpAddr=x", "--workers=-1")
	for _, flag := range []string{"--domain", "--httpAddr", "--workers"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v does not name %s", err, flag)
		}
	}
}

func TestLevels(t *testing.T) {
	for text, good := range map[string]bool{
		"": true, "debug": true, "default:warn": true, "ads:debug,default:error": true, "none": true, "loud": false, "xds:loud": false,
	} {
		_, err := parse(t, "--configDir="+t.TempDir(), "--log_output_level="+text)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--log_output_level") {
			t.Errorf("--log_output_level=%s: %v", text, err)
		}
	}
}

func TestAge(t *testing.T) {
	s, err := parse(t, "--configDir="+t.TempDir(), "--keepaliveMaxServerConnectionAge=30m")
	if err != nil || s.KeepaliveMaxServerConnectionAge != 30*time.Minute {
		t.Errorf("got %v, %v", s.KeepaliveMaxServerConnectionAge, err)
	}
	s, err = parse(t, "--configDir="+t.TempDir(), "--keepaliveMaxServerConnectionAge=infinity")
	if err != nil || s.KeepaliveMaxServerConnectionAge != forever {
		t.Errorf("got %v, %v", s.KeepaliveMaxServerConnectionAge, err)
	}
}

func TestRemarks(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		// Defaults without an effect get no remark, and neither do flags that disable them.
		{nil, nil},
		{[]string{"--registries=", "--secureGRPCAddr=", "--httpsAddr=", "--monitoringAddr=", "--ctrlz_port=0"}, nil},
		{[]string{"--httpsAddr=:15017"}, nil},
		{[]string{"--secureGRPCAddr=:9000"}, nil},
		{[]string{"--kubeconfig", "x", "--registries=Kubernetes", "--namespace=mesh"}, nil},
		{[]string{"--registries=Kubernetes"}, []string{"--registries=Kubernetes has no effect: with --configDir, Kubernetes is read only if --kubeconfig is set"}},
		{[]string{"--registries=Mock"}, []string{"--registries=Mock has no effect: it is not supported yet"}},
		{[]string{"--tls-min-version=1.3"}, []string{"--tls-min-version=1.3 has no effect: it is not supported yet"}},
		{[]string{"--grpcAddr="}, nil},
		{[]string{"--grpcAddr=", "--secureGRPCAddr="}, []string{"--grpcAddr and --secureGRPCAddr are empty: no proxy can connect"}},
		{[]string{"--domain", "--strange", "--log_as_json"}, nil}, // a value that looks like a flag
		{[]string{"--minCommitInterval", "1ms", "--http-addr=:1", "-x"}, []string{
			"unknown flag --http-addr has no effect; did you mean --httpAddr?",
			"unknown flag -x has no effect"}},
		{[]string{"-nmesh", "--", "--strange"}, []string{"--namespace=mesh has no effect: the namespace of the control plane is not used yet; set the namespace of mesh-wide rules with rootNamespace in the mesh settings"}},
	} {
		args := append([]string{"--configDir=."}, c.args...)
		s, err := parse(t, args...)
		if err != nil && !strings.Contains(err.Error(), "--strange") {
			t.Errorf("%q: %v", c.args, err)
		}
		if got := s.Remarks(args); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}
}

// TestHelpTellsWhatDoesNothing: the help says of flags without an effect that they have none.
func TestHelpTellsWhatDoesNothing(t *testing.T) {
	s := New(noEnv)
	fs := pflag.NewFlagSet("discovery", pflag.ContinueOnError)
	s.Flags(fs)
	for _, f := range inert() {
		if usage := fs.Lookup(f.name).Usage; !strings.HasPrefix(usage, "not used yet: ") {
			t.Errorf("--%s: %s", f.name, usage)
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}

func TestRemoteClusterTimeout(t *testing.T) {
	for value, want := range map[string]string{"": "30s", "1m": "1m0s", "0s": "is not a duration above zero", "30": "is not a duration above zero"} {
		s := New(func(name string) (string, bool) { return value, name == "PILOT_REMOTE_CLUSTER_TIMEOUT" })
		s.Flags(pflag.NewFlagSet("", pflag.ContinueOnError))
		got := ""
		if err := s.Validate(); err != nil {
			got = err.Error()
		} else {
			got = s.RemoteClusterTimeout.String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

// TestRefusedPolicies: refused access policies deny unless the setting says otherwise, and no other value is accepted.
func TestRefusedPolicies(t *testing.T) {
	for _, c := range []struct {
		refused, delay, wrong string
		ignore                bool
		wait                  time.Duration
	}{
		{"", "", "", false, 5 * time.Second},
		{"deny", "1s", "", false, time.Second},
		{"ignore", "2m", "", true, 2 * time.Minute},
		{"warn", "", "PILOT_REFUSED_POLICIES", false, 5 * time.Second},
		{"", "0s", "PILOT_POLICY_REMOVAL_DELAY", false, 0},
		{"", "1h", "PILOT_POLICY_REMOVAL_DELAY", false, time.Hour},
		{"", "soon", "PILOT_POLICY_REMOVAL_DELAY", false, 0},
	} {
		values := map[string]string{"PILOT_REFUSED_POLICIES": c.refused, "PILOT_POLICY_REMOVAL_DELAY": c.delay}
		s := New(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
		err := errors.Join(s.environment...)
		if s.IgnoreRefused != c.ignore || s.PolicyWait != c.wait || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q, %q: ignore %v, wait %v, %v", c.refused, c.delay, s.IgnoreRefused, s.PolicyWait, err)
		}
	}
}

// TestUnready: which variables say whether proxies know endpoints that are not ready; the older one wins.
func TestUnready(t *testing.T) {
	for _, c := range []struct {
		send, auto string
		want       mesh.UnreadyEndpoints
	}{
		{"", "", mesh.UnreadyUnlessUsed}, {"false", "true", mesh.UnreadyUnlessUsed}, {"true", "", mesh.UnreadyAlways},
		{"", "false", mesh.UnreadyNever}, {"true", "false", mesh.UnreadyAlways},
	} {
		s := New(func(name string) (string, bool) {
			v := map[string]string{"PILOT_SEND_UNHEALTHY_ENDPOINTS": c.send, "PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS": c.auto}[name]
			return v, v != ""
		})
		if s.Unready != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.send, c.auto, s.Unready, c.want)
		}
	}
}

func TestTraceSampling(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "0": 0, "12.5": 12.5, "100.0": 100, "101": -1, "-1": -1, "NaN": -1, "half": -1} {
		s := New(func(string) (string, bool) { return text, text != "" })
		wrong := strings.Contains(fmt.Sprint(errors.Join(s.environment...)), "PILOT_TRACE_SAMPLING")
		if wrong != (want < 0) || !wrong && s.TraceSampling != want {
			t.Errorf("%q: %v, refused %v; want %v", text, s.TraceSampling, wrong, want)
		}
	}
}

// sources are the programs' sources except the table of variables.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.go", "../run/statefile/*.go", "../source/kube/*.go", "../../cmd/pilot-discovery/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if file == "istio.go" || file == "istiofixed.go" || strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// TestVariables: a variable that acts is read and has no remark; any other has one, unless it has its usual value; and each variable that
// this package reads is in the table.
func TestVariables(t *testing.T) {
	read, seen := sources(t), map[string]bool{}
	remarked := func(name, value string) bool {
		return slices.ContainsFunc(VariableRemarks([]string{name + "=" + value}), func(r string) bool { return strings.HasPrefix(r, name+"=") })
	}
	for _, v := range allVariables() {
		if (v.Does == "") == (v.Lacks == "") || seen[v.Name] {
			t.Errorf("%s: the table must have it once, with what it does or why it has no effect", v.Name)
		}
		seen[v.Name] = true
		inSource := strings.Contains(read, `"`+v.Name+`"`)
		switch {
		case v.Does != "" && (!inSource || remarked(v.Name, "other")):
			t.Errorf("%s acts as the table says: it is read %v, it has a remark %v", v.Name, inSource, remarked(v.Name, "other"))
		case v.Lacks != "" && (inSource || !remarked(v.Name, "other")):
			t.Errorf("%s has no effect as the table says: it is read %v, it has a remark %v", v.Name, inSource, remarked(v.Name, "other"))
		case v.Lacks != "" && (remarked(v.Name, "") || v.Usual != "" && remarked(v.Name, v.Usual) || v.Usual == "" && remarked(v.Name, "false")):
			t.Errorf("%s has a remark with a value that asks for nothing", v.Name)
		}
	}
	for _, m := range regexp.MustCompile(`(?:env|boolean|lookup)\("([A-Z0-9_]+)"|prefix\(env, "([A-Z0-9_]+)"|(?:duration|number)\("([A-Z0-9_]+)"`).FindAllStringSubmatch(read, -1) {
		if name := m[1] + m[2] + m[3]; !seen[name] && strings.Contains(name, "_") && !strings.HasPrefix(name, "XDG_") {
			t.Errorf("%s is read, and is not in the table", name)
		}
	}
	got := VariableRemarks([]string{"PILOT_ENABLE_AMBIENT=true", "PILOT_DEBOUNCE_AFTER=1s", "PILOT_PUSH_THROTLE=5", "PILOT_STATE_DIR=x", "HOME=/"})
	want := []string{
		"PILOT_DEBOUNCE_AFTER=1s has no effect: " + atOnce, "PILOT_ENABLE_AMBIENT=true has no effect: " + noAmbient,
		"PILOT_PUSH_THROTLE has no effect: there is no such variable; did you mean PILOT_PUSH_THROTTLE?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
