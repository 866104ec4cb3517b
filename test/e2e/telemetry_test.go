package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/test/testbed"
)

// collector is a collector of OpenTelemetry over gRPC.
type collector struct {
	tracev1.UnimplementedTraceServiceServer

	port int
	mu   sync.Mutex
	// spans are the names and attributes of the spans that arrived, and logs the bodies of log records.
	spans, logs []string
	// hangs is closed at the end if the collector answers nothing.
	hangs chan struct{}
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{port: l.Addr().(*net.TCPAddr).Port}
	server := grpc.NewServer()
	tracev1.RegisterTraceServiceServer(server, c)
	logsv1.RegisterLogsServiceServer(server, logService{collector: c})
	go func() { _ = server.Serve(l) }() // ends by Stop
	t.Cleanup(func() {
		c.hang(nil)
		server.Stop()
	})
	return c
}

// hang makes the collector answer nothing until the channel is closed.
func (c *collector) hang(until chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hangs != nil {
		close(c.hangs)
	}
	c.hangs = until
}

// got notes something, and waits if the collector hangs.
func (c *collector) got(list *[]string, texts ...string) {
	c.mu.Lock()
	hangs := c.hangs
	*list = append(*list, texts...)
	c.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
}

// has reports whether the collector got a text.
func (c *collector) has(list *[]string, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, got := range *list {
		if strings.Contains(got, text) {
			return nil
		}
	}
	return fmt.Errorf("the collector got %q, want %q", *list, text)
}

// Export implements tracev1.TraceServiceServer.
func (c *collector) Export(_ context.Context, m *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	for _, from := range m.GetResourceSpans() {
		for _, s := range from.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				text := span.GetName()
				for _, a := range span.GetAttributes() {
					text += " " + a.GetKey() + "=" + a.GetValue().GetStringValue()
				}
				c.got(&c.spans, text)
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

type logService struct {
	logsv1.UnimplementedLogsServiceServer
	*collector
}

// Export implements logsv1.LogsServiceServer.
func (s logService) Export(_ context.Context, m *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	for _, from := range m.GetResourceLogs() {
		for _, l := range from.GetScopeLogs() {
			for _, r := range l.GetLogRecords() {
				s.got(&s.logs, r.GetBody().GetStringValue())
			}
		}
	}
	return &logsv1.ExportLogsServiceResponse{}, nil
}

// TestTelemetry: requests are logged to a file and to a collector, and traced there, as providers and a Telemetry say. A collector that
// hangs delays no request, and one bad provider affects no other.
func TestTelemetry(t *testing.T) {
	c := newCollector(t)
	reviews, traced := newService(t, "reviews", backend(t, "v1")), newService(t, "collector")
	dir := t.TempDir()
	mesh, log := filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "access.log")
	if err := os.WriteFile(mesh, fmt.Appendf(nil, `
defaultProviders: {tracing: [spans]}
extensionProviders:
- {name: file, envoyFileAccessLog: {path: %[1]s, logFormat: {labels: {path: "%%REQ_WITHOUT_QUERY(:PATH)%%", code: "%%RESPONSE_CODE%%"}}}}
- {name: records, envoyOtelAls: {service: shop/%[2]s, port: %[3]d, logFormat: {text: "body %%REQ(:PATH)%%"}}}
- {name: spans, opentelemetry: {service: %[2]s, port: %[3]d}}
- {name: gone, envoyHttpAls: {service: gone.example, port: 80}}
`, log, traced.host(), traced.port), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %d, name: main, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {main: %d}}]
`, traced.host(), traced.port, c.port)
	const telemetry = `---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: istio-system}
spec:
  accessLogging:
  - {providers: [{name: file}, {name: gone}, {name: unknown}], filter: {expression: "request.path.startsWith('/logged')"}}
  - {providers: [{name: records}]}
  tracing:
  - {randomSamplingPercentage: 100, customTags: {flavour: {header: {name: x-flavour}}}}
`
	b := newBedWith(t, []string{"--meshConfig=" + mesh}, "services.yaml", reviews.entry()+entry, "telemetry.yaml", telemetry)
	b.envoy(testbed.Node{Name: "client", Namespace: "shop"})
	b.answers(reviews, "v1", "/logged?secret=1", "x-flavour", "vanilla")
	b.answers(reviews, "v1", "/quiet")
	b.await("a span", func(context.Context) error {
		return c.has(&c.spans, fmt.Sprintf("%s:%d/*", reviews.host(), reviews.port))
	})
	b.await("a tag", func(context.Context) error { return c.has(&c.spans, "flavour=vanilla") })
	b.await("a log record", func(context.Context) error { return c.has(&c.logs, "body /quiet") })
	b.await("a line in the log", func(context.Context) error { return logged(log) })

	c.hang(make(chan struct{}))
	for range 200 {
		b.answers(reviews, "v1", "/quiet")
	}
}

// logged reports whether a log holds exactly the requests that its filter selects.
func logged(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	for line := range strings.Lines(string(text)) {
		var entry struct {
			Path string
			Code int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return err
		}
		if entry.Path != "/logged" || entry.Code != 200 {
			return fmt.Errorf("the line %q is not about a request for /logged", line)
		}
	}
	return nil
}
