package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestEdgeConflicts: where servers of a port contradict each other, the first one serves, each other one has a Problem, and hosts that are in no conflict
// are served. An exact name goes before a pattern.
func TestEdgeConflicts(t *testing.T) {
	e := newEdge(t, nil, []string{"a", "b"})
	e.issue("any", "wild")
	e.issue("b", "other")
	e.servers(simpleServer("a"), simpleServer("b"),
		fmt.Sprintf("{port: {number: 443, name: again, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: b}}", edgeHost("a")),
		"{port: {number: 443, name: any, protocol: HTTPS}, hosts: ['*.edge.example.com'], tls: {mode: SIMPLE, credentialName: any}}",
		"{port: {number: 443, name: plain, protocol: HTTP}, hosts: ['*']}")
	e.presents(edgeHost("x"), "wild")
	e.presents(edgeHost("a"), "first")
	e.presents(edgeHost("b"), "other")
	e.problem("gateway-overruled", "spec.servers[2].hosts", "spec.servers[0]")
	e.problem("gateway-overruled", "spec.servers[4].port")
	e.serves(edgeHost("a"), http.StatusOK)
	if got := e.status(e.over(edgeHost("a")), edgeHost("b")); got != http.StatusNotFound {
		t.Errorf("a request for b over a connection for a: %d, want %d: the routes of a server are those of its hosts", got, http.StatusNotFound)
	}
	e.unrejected()
}

// TestEdgeLimits: what a client may do to a gateway is bounded and counted, and another client does not notice.
func TestEdgeLimits(t *testing.T) {
	e := newEdge(t, nil, []string{"a"})
	e.serves(edgeHost("a"), http.StatusOK)
	slow := e.slowHeaders()
	e.largeHeaders()
	e.rapidResets()
	begin := time.Now()
	answer, err := io.ReadAll(slow)
	if took := time.Since(begin); err != nil || !bytes.Contains(answer, []byte(" 408 ")) || took > patience {
		t.Errorf("a client that does not end its headers gets %q after %v, %v; want 408", answer, took, err)
	}
	e.counted("downstream_rq_header_timeout", 1)
	e.serves(edgeHost("a"), http.StatusOK)
}

// counted waits until Envoy has counted something n times.
func (e *edge) counted(stat string, n int64) {
	e.Helper()
	e.await(fmt.Sprintf("%d of %s", n, stat), func(ctx context.Context) error {
		got, err := e.router.Sum(ctx, `^http\.outbound_.*\.`+stat+`$`)
		if err == nil && got < n {
			err = fmt.Errorf("there are %d", got)
		}
		return err
	})
}

// dial opens a connection to the gateway for a.
func (e *edge) dial(protocol string) *tls.Conn {
	e.Helper()
	config := e.tlsTo(edgeHost("a"))
	config.NextProtos = []string{protocol}
	d := tls.Dialer{Config: config}
	conn, err := d.DialContext(e.Context(), "tcp", testbed.Loopback(e.gateway))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		e.Fatal(err)
	}
	return conn.(*tls.Conn)
}

// slowHeaders begins a request and does not end its headers.
func (e *edge) slowHeaders() *tls.Conn {
	e.Helper()
	conn := e.dial("http/1.1")
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nX-Slow: ", edgeHost("a")); err != nil {
		e.Fatal(err)
	}
	return conn
}

// largeHeaders sends headers that are larger than any that Envoy takes.
func (e *edge) largeHeaders() {
	e.Helper()
	for protocol, client := range map[string]*http.Client{"HTTP/2": e.over(edgeHost("a")), "HTTP/1.1": {
		Transport: &http.Transport{TLSClientConfig: e.tlsTo(edgeHost("a")), DisableKeepAlives: true}, Timeout: patience,
	}} {
		req, err := http.NewRequestWithContext(e.Context(), http.MethodGet, "https://"+testbed.Loopback(e.gateway)+"/", nil)
		if err != nil {
			e.Fatal(err)
		}
		req.Host = edgeHost("a")
		req.Header.Set("X-Large", strings.Repeat("x", 70<<10))
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			e.Errorf("%s: headers of 70 KB: %d, want 431 or the end of the connection", protocol, resp.StatusCode)
		}
	}
	e.counted("downstream_rq_4xx", 1)
}

// rapidResets begins requests over HTTP/2 and resets each at once. Envoy ends the connection.
func (e *edge) rapidResets() {
	e.Helper()
	conn := e.dial("h2")
	ended := make(chan struct{})
	go func() { // what Envoy sends must be read, or it waits
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		e.Fatal(err)
	}
	frames := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	err := frames.WriteSettings()
	for i := uint32(0); i < 2000 && err == nil; i++ {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", edgeHost("a")}} {
			_ = headers.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id := 2*i + 1
		if err = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err == nil {
			err = frames.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	}
	select {
	case <-ended:
	case <-time.After(patience):
		e.Error("the connection is open after 2,000 requests that were reset at once")
	}
	e.counted("downstream_rq_too_many_premature_resets", 1)
}
