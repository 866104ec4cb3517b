package agent

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestSecureScrape: clients with a certificate of the mesh are answered on the ports for scrapes over TLS, with the metrics of Envoy on the one
// and those merged by the agent on the other; clients without one are not.
func TestSecureScrape(t *testing.T) {
	b := newBed(t)
	b.TLSOnly()
	b.serve()
	ports, err := testbed.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	o, files := b.certified("web"), t.TempDir()
	o.Env = append(o.Env, "OUTPUT_CERTS="+files, "ENVOY_SECURE_METRICS_PORT="+strconv.Itoa(ports[0]), "ENVOY_SECURE_MERGED_METRICS_PORT="+strconv.Itoa(ports[1]))
	b.ready(o, testbed.Node{})
	client := b.member(files)
	for port, want := range map[int]string{ports[0]: "envoy_server_live", ports[1]: `pilot_agent_scrape_target_up{target="envoy"} 1`} {
		b.await("a scrape over TLS", func(ctx context.Context) error { return scrape(ctx, client, port, want) })
		if err := scrape(t.Context(), stranger(), port, want); err == nil {
			t.Errorf("port %d answers a client without a certificate", port)
		}
	}
}

// member is a client with the certificate in a folder.
func (b *bed) member(files string) *http.Client {
	b.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(files, "cert-chain.pem"), filepath.Join(files, "key.pem"))
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(files, "root-cert.pem"))
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	c := stranger()
	config := c.Transport.(*http.Transport).TLSClientConfig
	config.Certificates = []tls.Certificate{pair}
	config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error { // the server has no DNS name
		leaf, err := x509.ParseCertificate(raw[0])
		if err == nil {
			_, err = leaf.Verify(x509.VerifyOptions{Roots: roots})
		}
		return err
	}
	return c
}

// stranger is a client without a certificate.
func stranger() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

func scrape(ctx context.Context, c *http.Client, port int, want string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+testbed.Loopback(port)+"/stats/prometheus", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(text), want) {
		err = fmt.Errorf("%s without %s:\n%.300s", resp.Status, want, text)
	}
	return err
}

// TestCompressedScrape: who accepts gzip gets gzip, unless statsCompression is switched off.
func TestCompressedScrape(t *testing.T) {
	b := newBed(t)
	b.serve()
	for _, on := range []bool{true, false} {
		o := options()
		o.Env = []string{fmt.Sprintf("PROXY_CONFIG={statsCompression: %v}", on)}
		a := b.ready(o, testbed.Node{Name: fmt.Sprint(on)})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+testbed.Loopback(a.MetricsPort)+"/stats/prometheus", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "gzip") // set by hand, so the client does not decompress
		resp, err := b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body io.Reader = resp.Body
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != on {
			t.Fatalf("compressed: %v, want %v", got, on)
		}
		if on {
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), "envoy_server_live") {
			t.Errorf("%v\n%.300s", err, text)
		}
	}
}

// TestProbesThroughLoadBalancers: with the variable for it, probes may come with PROXY protocol, or without; and without the variable only so.
func TestProbesThroughLoadBalancers(t *testing.T) {
	b := newBed(t)
	b.serve()
	for _, on := range []bool{true, false} {
		o := options()
		o.Env = []string{fmt.Sprintf("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL=%v", on)}
		a := b.ready(o, testbed.Node{Name: fmt.Sprint(on)})
		b.await("the listener for probes", func(ctx context.Context) error { return probe(ctx, "127.0.0.1", a.HealthPort, "") })
		if err := probe(t.Context(), "127.0.0.1", a.HealthPort, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"); (err == nil) != on {
			t.Errorf("with PROXY protocol, which is %v: %v", on, err)
		}
	}
}

// TestProbesOfBothVersions: a workload with addresses of both versions is probed over both, one with IPv4 addresses over IPv4 only.
func TestProbesOfBothVersions(t *testing.T) {
	b := newBed(t)
	b.serve()
	for ips, both := range map[string]bool{"127.1.0.1,::1": true, "127.1.0.1": false} {
		a := b.ready(options(), testbed.Node{IP: ips, Name: fmt.Sprintf("both-%v", both)})
		b.await("the listener for probes", func(ctx context.Context) error { return probe(ctx, "127.0.0.1", a.HealthPort, "") })
		if err := probe(t.Context(), "::1", a.HealthPort, ""); (err == nil) != both {
			t.Errorf("%s over IPv6: %v", ips, err)
		}
	}
}

// probe asks whether the proxy is ready, after a prefix.
func probe(ctx context.Context, host string, port int, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := io.WriteString(c, prefix+"GET /healthz/ready HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
