package agent

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/pilotmesh/pilot/internal/agent/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func settings(t *testing.T, environ []string, args ...string) *config.Settings {
	t.Helper()
	s := config.New(append([]string{"POD_NAME=web-1", "POD_NAMESPACE=shop", "INSTANCE_IP=127.1.0.1"}, environ...))
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	s.Flags(fs)
	if err := fs.Parse(append([]string{"--discoveryAddress=[fd00::9]:15010"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBoot(t *testing.T) {
	s := settings(t, []string{`ISTIO_METAJSON_LABELS={"app":"web"}`, "ISTIO_META_INTERCEPTION_MODE=NONE", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=3s"},
		"--proxyAdminPort=1", "--statusPort=2", "--envoyStatusPort=3", "--envoyPrometheusPort=4", "--sotw", "--restarts=7", "--terminationDrainDuration=9s", "--concurrency=5")
	c, err := Boot(s, Machine{Memory: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	if c.Relay != "etc/istio/proxy/XDS" || c.AdminPort != 1 || c.StatusPort != 2 || c.HealthPort != 3 || c.MetricsPort != 4 || !c.SotW || c.IPv6 {
		t.Errorf("got %+v", c)
	}
	m := c.Node.GetMetadata().GetFields()
	if c.Node.GetId() != "sidecar~127.1.0.1~web-1.shop~shop.svc.cluster.local" || c.Node.GetCluster() != "web.shop" ||
		m["INTERCEPTION_MODE"].GetStringValue() != "NONE" || m["ISTIO_VERSION"].GetStringValue() != IstioVersion || m["ENVOY_STATUS_PORT"].GetNumberValue() != 3 {
		t.Errorf("got %v", c.Node)
	}
	p := policy(s)
	if p.Restarts != 7 || p.Drain != 9*time.Second || !p.UntilIdle || p.MinDrain != 3*time.Second || concurrency(s) != 5 || flush(s) != time.Second {
		t.Errorf("got %+v", p)
	}
	if n := concurrency(settings(t, nil)); n < 1 {
		t.Errorf("%d threads", n)
	}
}

// TestNoStatusServer: without the status server, the bootstrap has no listener that forwards to it.
func TestNoStatusServer(t *testing.T) {
	c, err := Boot(settings(t, nil, "--statusPort=0"), Machine{Memory: math.MaxUint64})
	if err != nil || c.StatusPort != 0 || c.HealthPort != 0 || c.MetricsPort != 15090 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Boot(settings(t, nil, "--statusPort=15000"), Machine{Memory: math.MaxUint64}); err == nil || !strings.Contains(err.Error(), "port 15000 is set for both") {
		t.Error(err)
	}
}

// TestSecretsSocket: the socket is Istio's, unless the agent has a directory of its own, or another program serves secrets.
func TestSecretsSocket(t *testing.T) {
	absolute, err := filepath.Abs("etc/istio/proxy")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ []string
		path    string
		want    string
	}{
		{nil, "./etc/istio/proxy", "./var/run/secrets/workload-spiffe-uds/socket"},
		{nil, "", "./var/run/secrets/workload-spiffe-uds/socket"},
		{nil, absolute, "./var/run/secrets/workload-spiffe-uds/socket"},
		{nil, "/tmp/api-1", "/tmp/api-1/secrets.sock"},
		{[]string{"WORKLOAD_IDENTITY_SOCKET_FILE=spire"}, "/tmp/api-1", "./var/run/secrets/workload-spiffe-uds/spire"},
	} {
		got, err := Boot(settings(t, c.environ, "--configPath="+c.path), Machine{Memory: math.MaxUint64})
		if err != nil || got.SecretsSocket != c.want {
			t.Errorf("%q: %s, %v; want %s", c.path, got.SecretsSocket, err, c.want)
		}
	}
}

// TestOtherAuthority: an agent knows that the control plane does not sign the certificates of its proxy.
func TestOtherAuthority(t *testing.T) {
	t.Chdir(t.TempDir())
	certificates := func(environ ...string) string {
		t.Helper()
		c, err := Boot(settings(t, environ, "--discoveryAddress=istiod.istio-system.svc:15012"), Machine{Memory: math.MaxUint64})
		if err != nil {
			t.Fatal(err)
		}
		return c.Node.GetMetadata().GetFields()["WORKLOAD_CERTIFICATES"].GetStringValue()
	}
	for environ, want := range map[string]string{
		"A=b": "", "CA_ADDR=istiod.istio-system.svc:15012": "", "CA_ADDR=ca.example:443": "other-authority",
		"CA_ADDR=istiod.istio-system.svc.cluster.local:15013": "", "CA_ADDR=istiod.other.svc:15012": "other-authority", "CA_ADDR=istiod-canary.istio-system.svc:15012": "other-authority",
		"WORKLOAD_IDENTITY_SOCKET_FILE=spire": "other-authority", "FILE_MOUNTED_CERTS=true": "none", "ISTIO_META_WORKLOAD_CERTIFICATES=other-authority": "other-authority",
	} {
		if got := certificates(environ); got != want {
			t.Errorf("%s: %q, want %q", environ, got, want)
		}
	}
	const mounted = "var/run/secrets/workload-spiffe-credentials"
	if err := os.MkdirAll(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"certificates.pem", "private_key.pem", "ca_certificates.pem"} {
		if err := os.WriteFile(filepath.Join(mounted, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := certificates("A=b"); got != "other-authority" {
		t.Errorf("with mounted certificates: %q", got)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "envoy-rev.json")
	for range 2 {
		if err := write(path, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 2 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := write(filepath.Join(path, "envoy-rev.json"), nil); err == nil || !strings.Contains(err.Error(), "--configPath") {
		t.Errorf("%v does not tell what to do", err)
	}
}

// TestSignals: signals in quick succession are one request, a later signal is another.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		last := make(chan struct{}, 9)
		stop := make(chan os.Signal, 9)
		a := signals(stop, func() { last <- struct{}{} }, log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {10 * time.Millisecond, 1}, {time.Second, 2}, {0, 2}, {time.Second, 3}} {
			<-time.After(step.after)
			stop <- syscall.SIGTERM
			synctest.Wait()
			if len(last) != step.want {
				t.Errorf("%v later: last %d, want %d", step.after, len(last), step.want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
