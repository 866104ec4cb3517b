// Package probe answers probes and hooks of the kubelet for the application. The injector redirects them to the agent,
// because the kubelet has no certificate of the mesh, and describes in ISTIO_KUBE_APP_PROBERS what the kubelet would have done. Without
// a kubelet, it runs a probe for the agent itself (Direct).
//
// Invariants: probes that others request call only the workload's own addresses. The size of an answer, the duration of a probe and the number
// of probes at the same time are limited. An answer follows the rules of the kubelet: certificates are not verified, and redirects are
// followed on the same host only.
//
// Goroutines: the package starts none of its own. A probe ends with its request or its timeout.
package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Prefixes of the paths at which probes and hooks are answered.
const (
	HealthPrefix = "/app-health/"
	HookPrefix   = "/app-lifecycle/"
)

// Probes are the probes and hooks of the application by their paths.
type Probes map[string]Probe

// Probe is a probe or hook that the kubelet would run itself. Exactly one of HTTP, TCP and GRPC is set.
type Probe struct {
	HTTP *HTTP `json:"httpGet,omitempty"`
	TCP  *TCP  `json:"tcpSocket,omitempty"`
	GRPC *GRPC `json:"grpc,omitempty"`
	// TimeoutSeconds is how long the application may take. Zero means one second for a probe; a hook may take as long as the
	// kubelet waits for it.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	hook bool
}

// HTTP is a GET request.
type HTTP struct {
	Path    string   `json:"path,omitempty"`
	Port    Port     `json:"port"`
	Host    string   `json:"host,omitempty"`
	Scheme  string   `json:"scheme,omitempty"`
	Headers []Header `json:"httpHeaders,omitempty"`
}

// Header is a header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCP opens a connection.
type TCP struct {
	Port Port   `json:"port"`
	Host string `json:"host,omitempty"`
}

// GRPC is a call of the gRPC health protocol. An empty service means the whole server.
type GRPC struct {
	Port    Port   `json:"port"`
	Service string `json:"service,omitempty"`
}

// Port is a port number. In JSON it may also be the text of a number.
type Port uint16

// UnmarshalJSON reads a number or the text of a number.
func (p *Port) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(string(bytes.Trim(b, `"`)), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("the port %s is not a number between 1 and 65535; the injector replaces names of ports by numbers", b)
	}
	*p = Port(n)
	return nil
}

// String returns the number.
func (p Port) String() string { return strconv.Itoa(int(p)) }

// Limits.
const (
	maxProbes      = 1000
	defaultTimeout = time.Second
	// hookTimeout is an upper limit. The kubelet gives up on a hook when the grace period of the pod is over.
	hookTimeout = time.Hour
)

var pathForm = regexp.MustCompile(`^/app-(health/[^/]+/(livez|readyz|startupz)|lifecycle/[^/]+/(prestopz|poststartz))$`)

// Parse reads ISTIO_KUBE_APP_PROBERS: a JSON object of probes by their paths. own are the addresses of the workload. Remarks name
// the settings without effect.
func Parse(text string, own []string) (probes Probes, remarks []string, err error) {
	if err := json.Unmarshal([]byte(text), &probes); err != nil {
		return nil, nil, fmt.Errorf("it is not a JSON object of probes: %w", err)
	}
	if len(probes) > maxProbes {
		return nil, nil, fmt.Errorf("it has %d probes; %d are allowed", len(probes), maxProbes)
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(probes)) {
		p := probes[path]
		p.hook = strings.HasPrefix(path, HookPrefix)
		if err := p.check(path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		if host := p.host(); host != "" && !isOwn(host, own) {
			remarks = append(remarks, fmt.Sprintf("%s: the host %q has no effect: only the workload itself is called", path, host))
		}
		probes[path] = p
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return probes, remarks, nil
}

func (p *Probe) check(path string) error {
	if !pathForm.MatchString(path) {
		return fmt.Errorf("the path is not one of %sCONTAINER/livez, readyz or startupz, or %sCONTAINER/prestopz or poststartz", HealthPrefix, HookPrefix)
	}
	if p.TimeoutSeconds < 0 {
		return fmt.Errorf("timeoutSeconds: %d is negative", p.TimeoutSeconds)
	}
	return p.valid()
}

// valid checks the fields of the probe, and completes them.
func (p *Probe) valid() error {
	kinds, port := 0, Port(0)
	if p.HTTP != nil {
		kinds, port = kinds+1, p.HTTP.Port
	}
	if p.TCP != nil {
		kinds, port = kinds+1, p.TCP.Port
	}
	if p.GRPC != nil {
		kinds, port = kinds+1, p.GRPC.Port
	}
	if kinds != 1 {
		return fmt.Errorf("it has %d of httpGet, tcpSocket and grpc; it must have one", kinds)
	}
	if port == 0 {
		return errors.New("the port is missing")
	}
	if p.HTTP != nil {
		return p.HTTP.check()
	}
	return nil
}

func (h *HTTP) check() error {
	if h.Scheme = strings.ToLower(h.Scheme); h.Scheme == "" {
		h.Scheme = "http"
	}
	if h.Scheme != "http" && h.Scheme != "https" {
		return fmt.Errorf("httpGet.scheme: %q is neither HTTP nor HTTPS", h.Scheme)
	}
	if !strings.HasPrefix(h.Path, "/") {
		h.Path = "/" + h.Path
	}
	if _, err := url.ParseRequestURI(h.Path); err != nil {
		return fmt.Errorf("httpGet.path: %w", err)
	}
	for _, header := range h.Headers {
		if !httpguts.ValidHeaderFieldName(header.Name) && header.Name != ":authority" || !httpguts.ValidHeaderFieldValue(header.Value) {
			return fmt.Errorf("httpGet.httpHeaders: %q: %q is not a header", header.Name, header.Value)
		}
	}
	return nil
}

// host returns the host that the probe names.
func (p *Probe) host() string {
	switch {
	case p.HTTP != nil:
		return p.HTTP.Host
	case p.TCP != nil:
		return p.TCP.Host
	default:
		return ""
	}
}

// isOwn reports whether a host is the workload itself.
func isOwn(host string, own []string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || slices.Contains(own, host) || err == nil && a.Unmap().IsLoopback()
}

// destination returns the address that the probe calls: the probe's host if it is an address of the workload, or else the given one.
func (p *Probe) destination(own []string, otherwise string) string {
	if host := p.host(); host != "" && isOwn(host, own) {
		return host
	}
	return otherwise
}

func (p *Probe) timeout() time.Duration {
	switch {
	case p.TimeoutSeconds > 0:
		return time.Duration(p.TimeoutSeconds) * time.Second
	case p.hook:
		return hookTimeout
	default:
		return defaultTimeout
	}
}
