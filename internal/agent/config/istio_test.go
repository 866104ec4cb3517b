package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// command returns the settings and the flags of a command line.
func command(t *testing.T, args ...string) (*Settings, *pflag.FlagSet) {
	t.Helper()
	s := New([]string{"INSTANCE_IP=127.1.0.1", "PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010"})
	s.dir = t.TempDir()
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	s.Flags(fs)
	if err := fs.Parse(s.WithoutUnknown(args)); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return s, fs
}

// TestIstioCommandLines: command lines of several versions of Istio's agent are accepted, with the role that they name. Flags that have no effect
// or do not exist are remarked upon, with their values.
func TestIstioCommandLines(t *testing.T) {
	const none, mistyped = " has no effect: ", "there is no such flag"
	for _, c := range []struct {
		line, rest string
		remarks    []string
	}{
		{"sidecar --domain shop.svc.cluster.local --proxyLogLevel=info,misc:error --log_output_level=default:info", "sidecar", nil},
		{"router --trust-domain cluster.local --applicationPorts 80,90", "router", []string{"--trust-domain=cluster.local" + none, "--applicationPorts=80,90" + none}},
		{"--log_target stdout sidecar --connectTimeout 10s", "sidecar", []string{"--log_target=stdout" + none, "--connectTimeout=10s" + none}},
		{"--controlPlaneBootstrap=false --disableInternalTelemetry router", "router", []string{"--disableInternalTelemetry=true" + none}},
		{"--bogus router", "router", []string{"--bogus" + none + mistyped}},
		{"--bogus=router sidecar", "sidecar", []string{"--bogus=router" + none + mistyped}},
		{"--bogus 5 -v 7 router --other", "router", []string{"--bogus" + none + mistyped, "-v" + none + mistyped, "--other" + none + mistyped}},
		{"--bogus --id a.b router", "router", []string{"--bogus" + none}},
		{"--id --bogus router", "router", nil}, // it is the value of --id
		{"router -- --bogus", "router --bogus", nil},
		{"--bogus waypoint", "waypoint", []string{"--bogus" + none}},
	} {
		s, fs := command(t, strings.Fields(c.line)...)
		if rest := strings.Join(fs.Args(), " "); rest != c.rest {
			t.Errorf("%s: the arguments are %q, want %q", c.line, rest, c.rest)
		}
		if err := s.Load(); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		got := slices.DeleteFunc(slices.Clone(s.Warnings()), func(r string) bool { return !strings.HasPrefix(r, "-") })
		for _, want := range c.remarks {
			if !slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, want) }) {
				t.Errorf("%s: there is no remark %s in %q", c.line, want, got)
			}
		}
		if len(got) != len(c.remarks) {
			t.Errorf("%s: the remarks are %q", c.line, got)
		}
	}
}

// TestEnvoyLogLevel: levels of components may follow the level, and are put before the levels of the other flag.
func TestEnvoyLogLevel(t *testing.T) {
	for _, c := range []struct{ level, components, want string }{
		{"", "", "warning / misc:error"},
		{"info,misc:error,upstream:debug", "", "info / misc:error,upstream:debug"},
		{"info,misc:debug", "", "info / misc:debug"},
		{"upstream:trace", "config:info", "warning / config:info,upstream:trace"},
		{"misc:error,debug", "", "debug / misc:error"},
		{"loud", "", `"loud" is not a log level of Envoy`},
		{"info,misc:loud", "", `"misc:loud" is not a component of Envoy with a log level`},
		{"info,:debug", "", `":debug" is not a component`},
		{"info,debug", "", `"info" and "debug" are both levels for all components`},
	} {
		var args []string
		if c.level != "" {
			args = append(args, "--proxyLogLevel="+c.level)
		}
		if c.components != "" {
			args = append(args, "--proxyComponentLogLevel="+c.components)
		}
		s, err := load(t, nil, []string{"PROXY_CONFIG=discoveryAddress: 10.0.0.1:15010"}, args...)
		got := s.EnvoyLogLevel + " / " + s.EnvoyComponentLogLevel
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s and %s: %s, want %s", c.level, c.components, got, c.want)
		}
	}
}

// TestIstioFlags: each flag of the table exists; it has a remark exactly if the table says that it has no effect.
func TestIstioFlags(t *testing.T) {
	for _, f := range istioFlags {
		if (f.does == "") == (f.lacks == "") {
			t.Errorf("--%s: the table must say one of what it does and why it has no effect", f.name)
		}
		value := map[string]string{
			"concurrency": "1", "stsPort": "0", "log_as_json": "true", "statusPort": "15020", "proxyAdminPort": "15000", "drainDuration": "1s", "parentShutdownDuration": "1m",
			"discoveryAddress": "a:15012", "controlPlaneAuthPolicy": "NONE", "zipkinAddress": "a:1", "datadogAgentAddress": "a:1", "statsdUdpAddress": "127.0.0.1:1",
			"ip": "127.1.0.1", "log_output_level": "info", "proxyLogLevel": "info", "templateFile": os.DevNull, "customConfigFile": os.DevNull, "meshConfig": os.DevNull,
		}[f.name]
		if value == "" {
			value = "true"
		}
		s, _ := command(t, "--"+f.name+"="+value)
		_ = s.Load() // the value may be a mistake, which is no remark
		remarked := slices.ContainsFunc(s.Warnings(), func(r string) bool { return strings.HasPrefix(r, "--"+f.name+"="+value+" has no effect: "+f.lacks) })
		if remarked != (f.lacks != "") || len(s.unknown) > 0 {
			t.Errorf("--%s: remarked upon: %v; the table says that it lacks %q, and %q that it is unknown", f.name, remarked, f.lacks, s.unknown)
		}
	}
}

// sources are the sources of the agent without this table.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.go", "../*.go", "../../../cmd/pilot-agent/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if file == "istio.go" || file == "metadata.go" || strings.HasSuffix(file, "_test.go") {
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

// TestIstioVariables: a variable with an effect is read by the agent and has no remark; any other has one, unless it has its usual value.
func TestIstioVariables(t *testing.T) {
	read := sources(t)
	for _, v := range istioVariables {
		if (v.Does == "") == (v.Lacks == "") {
			t.Errorf("%s: the table must say one of what it does and why it has no effect", v.Name)
		}
		name := strings.ReplaceAll(v.Name, "*", "X")
		remarked := func(value string) bool {
			for _, environ := range []string{name + "=" + value, fmt.Sprintf("PROXY_CONFIG={discoveryAddress: '10.0.0.1:15010', proxyMetadata: {%s: '%s'}}", name, value)} {
				s, _ := load(t, nil, []string{environ})
				if slices.ContainsFunc(s.Warnings(), func(r string) bool { return strings.HasPrefix(r, name+" has no effect: "+v.Lacks) }) {
					return true
				}
			}
			return false
		}
		inSource := strings.Contains(read, `"`+strings.TrimSuffix(v.Name, "*")+`"`)
		if key, ok := strings.CutPrefix(v.Name, metaPrefix); ok && key != "*" {
			inSource = inSource || strings.Contains(read, `"`+key+`"`)
		}
		switch {
		case v.Lacks == "" && !inSource:
			t.Errorf("%s acts as the table says, and the agent does not read it", v.Name)
		case v.Lacks != "" && !remarked("other"):
			t.Errorf("%s has no effect, and there is no remark", v.Name)
		case v.Lacks != "" && (remarked("") || v.Usual != "" && remarked(v.Usual)):
			t.Errorf("%s has a remark with its usual value", v.Name)
		}
	}
	for _, line := range []string{"GCP_METADATA=false", "XDS_AUTH_PROVIDER=0"} {
		if s := mustLoad(t, nil, []string{line}); len(s.Warnings()) != 1 { // the one about plaintext
			t.Errorf("%s: %q", line, s.Warnings())
		}
	}
}

// TestNoWrongRemark: no remark says that a setting with an effect has none.
func TestNoWrongRemark(t *testing.T) {
	s := mustLoad(t, nil, []string{
		"PROXY_CONFIG={discoveryAddress: '10.0.0.1:15010', caCertificatesPem: [x]}", "ISTIO_META_CERT_SIGNER=example.com/mesh", "METRICS_LOCALHOST_ACCESS_ONLY=true",
		"ISTIO_ENABLE_HTTP2_PROBING=false", "ENABLE_PROBE_KEEPALIVE_CONNECTIONS=true", "ISTIO_CPU_LIMIT=3",
	})
	if text := strings.Join(s.Warnings(), "\n"); strings.Contains(text, "no effect") {
		t.Error(text)
	}
	got := []any{s.Certificates.Signer, s.LocalMetrics, s.Application.HTTP2, s.Application.KeepAlive, s.CPULimit}
	if diff := cmp.Diff([]any{"example.com/mesh", true, false, true, 3}, got); diff != "" {
		t.Error(diff)
	}
	if s := mustLoad(t, nil, nil); !s.Application.HTTP2 || s.Application.KeepAlive || s.LocalMetrics {
		t.Errorf("by default: HTTP/2 %v, kept connections %v, metrics over loopback only %v", s.Application.HTTP2, s.Application.KeepAlive, s.LocalMetrics)
	}
}

// TestBlockingFiles: a pipe in the place of any file of settings is refused, and blocks nothing.
func TestBlockingFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, flag, want string }{
		{"ISTIO_BOOTSTRAP_OVERRIDE=" + pipe, "--id=", "ISTIO_BOOTSTRAP_OVERRIDE: " + pipe + " is not a regular file"},
		{"ISTIO_BOOTSTRAP=" + pipe, "--id=", "ISTIO_BOOTSTRAP: " + pipe + " is not a regular file"},
		{"X=", "--templateFile=" + pipe, "--templateFile: " + pipe + " is not a regular file"},
		{"X=", "--meshConfig=" + pipe, "--meshConfig: " + pipe + " is not a regular file"},
	} {
		s := New([]string{"INSTANCE_IP=127.1.0.1", c.env})
		fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
		s.Flags(fs)
		if err := fs.Parse([]string{c.flag}); err != nil {
			t.Fatal(err)
		}
		if err := s.Load(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.env, c.flag, err)
		}
	}
	for _, name := range []string{labelsFile, annotationsFile} {
		s := New([]string{"INSTANCE_IP=127.1.0.1"})
		s.dir = t.TempDir()
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Flags(pflag.NewFlagSet("proxy", pflag.ContinueOnError))
		if err := s.Load(); err == nil || !strings.Contains(err.Error(), name+" is not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
