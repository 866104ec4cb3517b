package probe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// userAgent is the User-Agent of the agent's own probes.
const userAgent = "pilot-agent-probe"

// Direct runs probes for the agent itself, where there is no kubelet.
type Direct struct {
	probe   Probe
	address string
	client  *http.Client
}

// NewDirect returns a runner of one probe. It calls the host of the probe, or the address if the probe names none.
func NewDirect(p Probe, address string) (*Direct, error) {
	if err := p.valid(); err != nil {
		return nil, err
	}
	return &Direct{probe: p, address: cmp.Or(p.host(), address), client: newClient(true, false)}, nil
}

// Try runs the probe once. A nil error means that the application is healthy.
func (d *Direct) Try(ctx context.Context) error {
	switch p := d.probe; {
	case p.HTTP != nil:
		return d.get(ctx, p.HTTP)
	case p.TCP != nil:
		return connect(ctx, net.JoinHostPort(d.address, p.TCP.Port.String()))
	default:
		return check(ctx, net.JoinHostPort(d.address, p.GRPC.Port.String()), p.GRPC.Service)
	}
}

// get sends a GET request. A status from 200 to 399 means that the application is healthy.
func (d *Direct) get(ctx context.Context, h *HTTP) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Scheme+"://"+net.JoinHostPort(d.address, h.Port.String())+h.Path, http.NoBody)
	if err != nil {
		return fmt.Errorf("the path %q of the probe is not valid: %w", h.Path, err)
	}
	req.Header.Set("User-Agent", userAgent)
	h.setHeaders(req)
	resp, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("the application: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)); err != nil {
		return fmt.Errorf("reading the answer of the application: %w", err)
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the application answers GET %s with %s", h.Path, resp.Status)
	}
	return nil
}
