package probe_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/pilotmesh/pilot/test/podrunner/probe"
)

// listen serves on a port of the loopback and returns it.
func listen(t *testing.T, server *http.Server) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func TestHTTP(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "named" && r.Header.Get("X") == "y" && r.Header.Get("User-Agent") == "kube-probe/1.36" {
			return
		}
		code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if code >= 300 && code < 400 {
			w.Header().Set("Location", "http://127.0.0.1:1/") // no server listens there
		}
		w.WriteHeader(code)
	})
	port := listen(t, &http.Server{Handler: handler})
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	securePort := secure.Listener.Addr().(*net.TCPAddr).Port
	target := probe.Target{Host: "127.0.0.1", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port}}}
	for _, test := range []struct {
		name   string
		action v1.HTTPGetAction
		want   string // "ok", or part of the output
	}{
		{"number", v1.HTTPGetAction{Path: "/200", Port: intstr.FromInt32(port)}, "ok"},
		{"name", v1.HTTPGetAction{Path: "/204", Port: intstr.FromString("web")}, "ok"},
		{"no such name", v1.HTTPGetAction{Path: "/200", Port: intstr.FromString("none")}, `no port named "none"`},
		{"bad", v1.HTTPGetAction{Path: "/503", Port: intstr.FromInt32(port)}, "statuscode: 503"},
		{"headers", v1.HTTPGetAction{Path: "/500", Port: intstr.FromInt32(port), HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "named"}, {Name: "X", Value: "y"}}}, "ok"},
		{"https", v1.HTTPGetAction{Path: "/200", Port: intstr.FromInt(securePort), Scheme: v1.URISchemeHTTPS}, "ok"},
		{"nobody", v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(1)}, "connection refused"},
	} {
		ok, output := probe.Check(t.Context(), v1.ProbeHandler{HTTPGet: &test.action}, target)
		if ok != (test.want == "ok") || !ok && !strings.Contains(output, test.want) {
			t.Errorf("%s: %v, %q; want %s", test.name, ok, output, test.want)
		}
	}
	tcp := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromString("web")}}
	if ok, output := probe.Check(t.Context(), tcp, target); !ok {
		t.Errorf("tcp: %s", output)
	}
}

func TestGRPC(t *testing.T) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	port := listen(t, &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		serving, status := byte(2), "0"
		switch {
		case r.URL.Path != "/grpc.health.v1.Health/Check":
			status = "12"
		case string(request) == "\x00\x00\x00\x00\x00", string(request) == "\x00\x00\x00\x00\x06\x0a\x04good":
			serving = 1
		case strings.HasSuffix(string(request), "none"):
			status = "5"
		}
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, serving})
		w.Header().Set("Grpc-Status", status)
	})})
	for service, want := range map[string]bool{"": true, "good": true, "bad": false, "none": false} {
		handler := v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: ptr.To(service)}}
		ok, output := probe.Check(t.Context(), handler, probe.Target{Host: "127.0.0.1"})
		if ok != want {
			t.Errorf("service %q: %v, %q", service, ok, output)
		}
	}
}

func TestExec(t *testing.T) {
	handler := v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}
	for _, test := range []struct {
		code   int
		err    error
		want   bool
		output string
	}{
		{0, nil, true, "out"}, {1, nil, false, "out"}, {0, errors.New("gone"), false, "gone"}, {0, context.DeadlineExceeded, false, "command timed out"},
	} {
		target := probe.Target{Exec: func(context.Context, []string) (int, string, error) { return test.code, "out", test.err }}
		if ok, output := probe.Check(t.Context(), handler, target); ok != test.want || output != test.output {
			t.Errorf("%+v: %v, %q", test, ok, output)
		}
	}
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked, told []time.Duration
		spec := &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 3, TimeoutSeconds: 2}
		loop := probe.Start(t.Context(), spec, func(ctx context.Context) (bool, string) {
			asked = append(asked, time.Since(begin))
			if len(asked) == 2 {
				<-ctx.Done() // too slow an answer does not delay the next question
			}
			return ctx.Err() == nil, ""
		}, func(ok bool, _ string) {
			if !ok {
				told = append(told, time.Since(begin))
			}
		})
		<-time.After(15 * time.Second)
		loop.Stop()
		<-time.After(time.Minute)
		if want := []time.Duration{5 * time.Second, 8 * time.Second, 11 * time.Second, 14 * time.Second}; !equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
		if want := []time.Duration{10 * time.Second}; !equal(told, want) {
			t.Errorf("bad answers at %v, want %v", told, want)
		}
	})
}

func equal(a, b []time.Duration) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
