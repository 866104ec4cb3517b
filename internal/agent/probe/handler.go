package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Limits of a probe and of all probes.
const (
	maxBody      = 10 << 10 // as much as the kubelet reads
	maxRedirects = 10
	maxHeader    = 64 << 10
	maxMessage   = 64 << 10
	maxRunning   = 64
)

// Addresses from which Envoy and the agent call the application. Traffic from them is not captured.
const (
	sourceIPv4 = "127.0.0.6"
	sourceIPv6 = "::6"
)

// Options say which probes are answered, and where the application is.
type Options struct {
	// Probes are the probes by their paths.
	Probes Probes
	// Address is the host that is called. Own are all addresses of the workload.
	Address string
	Own     []string
	// StatusPort is the port of the status server. In the Host header of a request that is passed on, the port of the application
	// replaces it.
	StatusPort uint32
	// HTTP1Only offers no HTTP/2 where a probe uses TLS. KeepAlive keeps connections to the application for later probes.
	HTTP1Only, KeepAlive bool
	Log                  *slog.Logger
}

// Handler answers requests for the paths of the probes. The status is 200 to 399 if the application is healthy.
func Handler(o Options) http.Handler {
	return &handler{Options: o, running: make(chan struct{}, maxRunning), client: newClient(!o.HTTP1Only, o.KeepAlive)}
}

// idle is how long a connection is kept. The kubelet probes every ten seconds, unless a probe says otherwise.
const idle = 30 * time.Second

// newClient returns a client that calls applications as the kubelet does, which offers HTTP/2 over TLS and keeps no connection.
func newClient(http2, keep bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(http2)
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: !keep, IdleConnTimeout: idle, DisableCompression: true, MaxResponseHeaderBytes: maxHeader, Protocols: &protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the kubelet does not verify certificates of applications either
	}}
}

type handler struct {
	Options
	running chan struct{} // holds an element per probe that runs
	client  *http.Client
}

// ServeHTTP runs the probe of the path.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, ok := h.Probes[r.URL.Path]
	if !ok {
		http.Error(w, fmt.Sprintf("there is no probe %s in ISTIO_KUBE_APP_PROBERS", r.URL.Path), http.StatusNotFound)
		return
	}
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	default:
		http.Error(w, fmt.Sprintf("%d probes are running already", maxRunning), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout())
	defer cancel()
	var err error
	switch {
	case p.HTTP != nil:
		err = h.http(ctx, w, r, p)
	case p.TCP != nil:
		err = h.tcp(ctx, p)
	default:
		err = h.grpc(ctx, p)
	}
	switch {
	case errors.Is(err, errAnswered):
		return
	case err == nil:
		fmt.Fprintln(w, "OK")
		return
	case ctx.Err() != nil:
		err = fmt.Errorf("the application did not answer within %v: %w", p.timeout(), err)
	}
	h.Log.Debug("probing the application", "path", r.URL.Path, "error", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// errAnswered reports that the response has been written.
var errAnswered = errors.New("answered")

// http passes the request on, and the answer back.
func (h *handler) http(ctx context.Context, w http.ResponseWriter, r *http.Request, p Probe) error {
	host := net.JoinHostPort(p.destination(h.Own, h.Address), p.HTTP.Port.String())
	target, err := url.Parse(p.HTTP.Scheme + "://" + host + p.HTTP.Path)
	if err != nil {
		return fmt.Errorf("the path %q of the probe is not valid: %w", p.HTTP.Path, err)
	}
	req := (&http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}, Host: h.authority(r.Host, p.HTTP.Port)}).WithContext(ctx)
	for name, values := range r.Header {
		if !slices.Contains(notPassedOn, name) {
			req.Header[name] = slices.Clone(values)
		}
	}
	p.HTTP.setHeaders(req)
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("the application: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("reading the answer of the application: %w", err)
	}
	for _, name := range []string{"Location", "Content-Type"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := w.Write(body); err != nil {
		h.Log.Debug("answering a probe", "error", err)
	}
	return errAnswered
}

// notPassedOn are headers that concern the connection to the agent.
var notPassedOn = []string{"Connection", "Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Accept-Encoding"}

// setHeaders sets the headers of the probe, which replace headers of the kubelet.
func (h *HTTP) setHeaders(req *http.Request) {
	for _, header := range h.Headers {
		req.Header.Del(header.Name)
	}
	for _, header := range h.Headers {
		switch name := http.CanonicalHeaderKey(header.Name); {
		case name == "Host" || header.Name == ":authority":
			req.Host = header.Value
		case name == "Accept" && header.Value == "": // to the kubelet this means no Accept header
		default:
			req.Header.Add(header.Name, header.Value)
		}
	}
}

// authority returns the Host header of a request with the port of the application in place of the agent's.
func (h *handler) authority(host string, port Port) string {
	if name, p, err := net.SplitHostPort(host); err == nil && p == strconv.Itoa(int(h.StatusPort)) {
		return net.JoinHostPort(name, port.String())
	}
	return host
}

// sameHost follows redirects as the kubelet does: on the same host. A redirect to another host is the answer.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

func (h *handler) tcp(ctx context.Context, p Probe) error {
	return connect(ctx, net.JoinHostPort(p.destination(h.Own, h.Address), p.TCP.Port.String()))
}

func (h *handler) grpc(ctx context.Context, p Probe) error {
	return check(ctx, net.JoinHostPort(h.Address, p.GRPC.Port.String()), p.GRPC.Service)
}

// connect opens a connection to the application and closes it.
func connect(ctx context.Context, address string) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the application: %w", err)
	}
	_ = conn.Close() // the application has accepted the connection, and nothing was written
	return nil
}

// check calls the gRPC health protocol of the application.
func check(ctx context.Context, address, service string) error {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithUserAgent("kube-probe"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
	if err != nil {
		return fmt.Errorf("the application: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing is buffered
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return fmt.Errorf("the application does not implement the gRPC health protocol (grpc.health.v1.Health): %w", err)
	case codes.NotFound:
		return fmt.Errorf("the application does not know the gRPC service %q: %w", service, err)
	default:
		return fmt.Errorf("the application: %w", err)
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the gRPC service %q of the application is %s", service, resp.GetStatus())
	}
	return nil
}

// dial connects from an address whose traffic is not captured, so that the application is called and not its proxy. Hosts that have
// no such address, which is usual with IPv6, capture nothing; there any source will do. The host localhost means the loopback
// addresses of both IP versions.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		conn, err := dial(ctx, network, net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			var other error
			if conn, other = dial(ctx, network, net.JoinHostPort("::1", port)); other == nil {
				return conn, nil
			}
		}
		return conn, err
	}
	source := sourceIPv4
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		source = sourceIPv6
	}
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(ctx, network, address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENETUNREACH) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return conn, err
}
