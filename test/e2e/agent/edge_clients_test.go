package agent

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/pilotmesh/pilot/test/testbed"
)

// tool returns the path of a program, or skips the test. `make test` builds some programs into .tools.
func tool(t *testing.T, name, from string) string {
	t.Helper()
	if built, err := filepath.Glob("../../../.tools/" + name + "-*/" + name); err == nil && len(built) > 0 {
		return built[len(built)-1]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is missing: install %s", name, from)
	}
	return path
}

// output runs a program and returns its output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(nil)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out)
	}
	return string(out), err
}

// TestEdgeClients: usual clients get answers from a gateway, and verify its certificate.
func TestEdgeClients(t *testing.T) {
	e := newEdge(t, nil, []string{"a", "calls"})
	port := serveGRPC(t, func(s *grpc.Server) {
		healthv1.RegisterHealthServer(s, health.NewServer())
		reflection.Register(s)
	})
	if _, err := e.Write("calls.yaml", fmt.Sprintf(callsMesh, port, edgeHost("calls"), page)); err != nil {
		t.Fatal(err)
	}
	e.serves(edgeHost("a"), http.StatusOK)
	roots := write(t, "roots.pem", e.authority.Pair().Cert)
	for version, flag := range map[string]string{"1.1": "--http1.1", "2": "--http2"} {
		t.Run("curl "+version, func(t *testing.T) {
			got, err := e.curl(t, roots, flag)
			if err != nil || got != "200 "+version {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	t.Run("openssl", func(t *testing.T) {
		got, err := output(t.Context(), tool(t, "openssl", "openssl"), "s_client", "-connect", testbed.Loopback(e.gateway), "-servername", edgeHost("a"),
			"-verify_hostname", edgeHost("a"), "-CAfile", roots, "-verify_return_error", "-alpn", "h2,http/1.1")
		if err != nil || !strings.Contains(got, "Verify return code: 0 (ok)") || !strings.Contains(got, "ALPN protocol: h2") {
			t.Errorf("%v\n%s", err, got)
		}
	})
	t.Run("h2load", func(t *testing.T) { e.loadUnderRotation(t, roots) })
	t.Run("grpcurl", func(t *testing.T) { e.call(t, roots) })
	t.Run("browser", func(t *testing.T) { e.browse(t, roots) })
}

// page is the content of a page of callsMesh.
const page = "Welcome to the shop"

// callsMesh leads a host of the gateway to a gRPC service, and serves a page.
const callsMesh = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: calls, namespace: shop}
spec:
  hosts: [calls.example.com]
  resolution: STATIC
  ports: [{number: 9000, name: grpc, protocol: GRPC, targetPort: %[1]d}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: calls, namespace: shop}
spec:
  hosts: [%[2]s]
  gateways: [edge]
  http:
  - {match: [{uri: {prefix: /grpc.}}], route: [{destination: {host: calls.example.com}}]}
  - {match: [{uri: {exact: /}}], directResponse: {status: 200, body: {string: %[3]s}}}
`

// call sends a call of gRPC, for which grpcurl first asks the server by a stream which methods it has.
func (e *edge) call(t *testing.T, roots string) {
	t.Helper()
	grpcurl := tool(t, "grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl, or run `make test`")
	e.await("an answer to a call of gRPC", func(ctx context.Context) error {
		got, err := output(ctx, grpcurl, "-cacert", roots, "-authority", edgeHost("calls"), testbed.Loopback(e.gateway), "grpc.health.v1.Health/Check")
		if err == nil && !strings.Contains(got, `"status": "SERVING"`) {
			err = fmt.Errorf("the answer is %s", got)
		}
		return err
	})
}

// browse opens the page in a browser that trusts the authority of the gateway, and in one that does not.
func (e *edge) browse(t *testing.T, roots string) {
	t.Helper()
	browser, certutil := tool(t, "chromium", "chromium"), tool(t, "certutil", "libnss3-tools")
	at := edgeHost("calls")
	shown := func(trusts bool) string {
		home := t.TempDir()
		if trusts {
			database := filepath.Join(home, ".pki", "nssdb")
			if err := os.MkdirAll(database, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"-N", "--empty-password"}, {"-A", "-t", "C,,", "-n", "edge", "-i", roots}} {
				if _, err := output(t.Context(), certutil, append([]string{"-d", "sql:" + database}, args...)...); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := output(t.Context(), "env", "HOME="+home, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(home, "profile"),
			"--host-resolver-rules=MAP "+at+" 127.0.0.1", "--dump-dom", fmt.Sprintf("https://%s:%d/", at, e.gateway))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := shown(true); !strings.Contains(got, page) {
		t.Errorf("a browser that trusts the authority does not show the page:\n%s", got)
	}
	if got := shown(false); strings.Contains(got, page) {
		t.Errorf("a browser that does not trust the authority shows the page:\n%s", got)
	}
}

// curl asks for the host a, over a new connection, and returns the status and the version of HTTP.
func (e *edge) curl(t *testing.T, roots, flag string) (string, error) {
	t.Helper()
	at := fmt.Sprintf("%s:%d", edgeHost("a"), e.gateway)
	return output(t.Context(), tool(t, "curl", "curl"), "-sS", flag, "--cacert", roots, "--resolve", at+":127.0.0.1", "-o", "/dev/null",
		"-w", "%{http_code} %{http_version}", "https://"+at+"/")
}

// loadUnderRotation replaces a certificate again and again while h2load keeps its connections, and while each call of curl opens one. Nothing fails.
func (e *edge) loadUnderRotation(t *testing.T, roots string) {
	t.Helper()
	h2load := tool(t, "h2load", "nghttp2-client")
	done := make(chan error, 1)
	report := ""
	go func() {
		var err error
		report, err = output(t.Context(), h2load, "-D", "8", "-c", "8", "-m", "4", "--rps", "25", "--connect-to", testbed.Loopback(e.gateway), "https://"+edgeHost("a")+"/")
		done <- err
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil || !strings.Contains(report, " 0 failed, 0 errored, 0 timeout") || !strings.Contains(report, " succeeded") || n < 2 {
				t.Errorf("%d certificates: %v\n%s", n, err, report)
			}
			return
		default:
		}
		name := fmt.Sprintf("rotated-%d", n)
		e.issue("a", name)
		e.presents(edgeHost("a"), name)
		if got, err := e.curl(t, roots, "--http2"); err != nil || got != "200 2" {
			t.Errorf("with certificate %d: %q, %v", n, got, err)
		}
	}
}
