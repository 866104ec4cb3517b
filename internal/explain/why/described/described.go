// Package described reads requests as users describe them, to ask whether they are allowed, as text or as parameters of a URL. It is pure: it has no
// goroutines and no state.
package described

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Request is a request as a user describes it, to ask whether it is allowed. Empty fields have a default or are not known.
type Request struct {
	// From is the service account of the client, as NAMESPACE/ACCOUNT; empty for a client that is not in the mesh. TrustDomain is the
	// client's; empty for the mesh's trust domain.
	From        string `json:"from,omitempty"`
	TrustDomain string `json:"trust_domain,omitempty"`
	// Address is the IP address of the client.
	Address string `json:"from_ip,omitempty"`
	// To is HOST:PORT of a service.
	To     string `json:"to"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Host is the Host header.
	Host string `json:"host"`
	// Headers are others, each as NAME=VALUE.
	Headers []string `json:"headers,omitempty"`
	// Claims are the claims of a verified token, as a JSON object.
	Claims string `json:"jwt_claims,omitempty"`
	// ServerName is the SNI.
	ServerName string `json:"sni,omitempty"`
	// Plaintext and MutualTLS say how the client connects; without them, automatic mutual TLS decides. TCP says that it does not speak
	// HTTP.
	Plaintext bool `json:"plaintext,omitempty"`
	MutualTLS bool `json:"mtls,omitempty"`
	TCP       bool `json:"tcp,omitempty"`
}

// Query is the description as parameters of a URL.
func (d Request) Query() url.Values {
	q := url.Values{}
	for name, text := range d.texts() {
		if *text != "" {
			q.Set(name, *text)
		}
	}
	for name, on := range d.switches() {
		if *on {
			q.Set(name, "")
		}
	}
	for _, h := range d.Headers {
		q.Add("header", h)
	}
	return q
}

// RequestBy is the description that the parameters of a URL give.
func RequestBy(q url.Values) (d Request, err error) {
	texts, switches := d.texts(), d.switches()
	for name, values := range q {
		switch text, on := texts[name], switches[name]; {
		case name == "header":
			d.Headers = values
		case text != nil:
			*text = values[0]
		case on != nil:
			*on = values[0] != "false"
		case name != "pretty":
			return d, fmt.Errorf("%q is no parameter of this page", name)
		}
	}
	return d, nil
}

// texts and switches are the fields by the names of parameters.
func (d *Request) texts() map[string]*string {
	return map[string]*string{
		"from": &d.From, "trust-domain": &d.TrustDomain, "from-ip": &d.Address, "to": &d.To, "method": &d.Method, "path": &d.Path, "host": &d.Host,
		"jwt-claims": &d.Claims, "sni": &d.ServerName,
	}
}

func (d *Request) switches() map[string]*bool {
	return map[string]*bool{"plaintext": &d.Plaintext, "mtls": &d.MutualTLS, "tcp": &d.TCP}
}

// Service is what Request.To names.
type Service struct {
	Host string
	Port uint32
}

// Parsed is a parsed description. Target is the service of To. Sent is the request of the client; it does not have the fields that depend on the workload.
type Parsed struct {
	Request
	Target Service
	Sent   access.Request
	// Namespace is the client's namespace, and Account its service account.
	Namespace, Account string
	// Token are the claims of the token; nil if there is none.
	Token map[string]any
}

// Parse understands a description and fills in defaults.
func (d Request) Parse() (p Parsed, err error) {
	p = Parsed{Request: d}
	if p.Target, err = parseDestination(d.To); err != nil {
		return p, err
	}
	if d.From != "" {
		if p.Namespace, p.Account, err = identity.ParseAccount(d.From); err != nil {
			return p, fmt.Errorf("the client: %w", err)
		}
	}
	switch {
	case d.Plaintext && d.MutualTLS:
		return p, fmt.Errorf("a client speaks either plain text or mutual TLS")
	case d.MutualTLS && d.From == "":
		return p, fmt.Errorf("a client that speaks mutual TLS has an identity; say who it is, as NAMESPACE/SERVICE-ACCOUNT")
	}
	if d.Address != "" {
		if p.Sent.Source, err = netip.ParseAddr(d.Address); err != nil || p.Sent.Source.Zone() != "" {
			return p, fmt.Errorf("the address of the client, %q, is no IP address", d.Address)
		}
	}
	p.Sent.TCP = d.TCP
	if d.TCP && (d.Method != "" || d.Path != "" || d.Host != "" || len(d.Headers) > 0 || d.Claims != "") {
		return p, fmt.Errorf("a connection that is not HTTP has no method, path, host, headers or token")
	}
	if !d.TCP {
		err = p.parseHTTP()
	}
	return p, err
}

func parseDestination(text string) (d Service, err error) {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n == 0 || host == "" {
		return d, fmt.Errorf("%q is not HOST:PORT of a service, such as reviews.shop:9080", text)
	}
	return Service{strings.ToLower(strings.TrimSuffix(host, ".")), uint32(n)}, nil
}

// parseHTTP parses the description of an HTTP request.
func (p *Parsed) parseHTTP() error {
	p.Method, p.Path = cmp.Or(p.Method, "GET"), cmp.Or(p.Path, "/")
	if p.Host == "" {
		p.Host = p.To
		if p.Target.Port == 80 { // clients leave the usual port out
			p.Host = p.Host[:strings.LastIndexByte(p.Host, ':')]
		}
	}
	r := &p.Sent
	r.Method, r.Path, r.Host = p.Method, p.Path, p.Host
	switch {
	case !isToken(p.Method):
		return fmt.Errorf("%q is no method of HTTP", p.Method)
	case !strings.HasPrefix(p.Path, "/") || strings.ContainsFunc(p.Path, notVisible):
		return fmt.Errorf("the path %q must begin with a slash and have visible ASCII characters only; escape others as %%XX", p.Path)
	case strings.Contains(p.Path, "#"):
		return fmt.Errorf("the path %q has a fragment, and clients send none; escape # as %%23", p.Path)
	case strings.ContainsFunc(p.Host, notVisible):
		return fmt.Errorf("%q is no host", p.Host)
	}
	for _, text := range p.Headers {
		h, err := parseHeader(text)
		if err != nil {
			return err
		}
		r.Headers = append(r.Headers, h)
	}
	return p.parseClaims()
}

// parseHeader understands NAME=VALUE, or "NAME: VALUE".
func parseHeader(text string) (access.Header, error) {
	at := strings.IndexAny(text, "=:")
	if at < 0 {
		return access.Header{}, fmt.Errorf("%q is no header; write NAME=VALUE", text)
	}
	h := access.Header{Name: strings.TrimSpace(text[:at]), Value: text[at+1:]} // over HTTP/2 blanks are a part of the value
	if text[at] == ':' {
		h.Value = strings.TrimLeft(h.Value, " \t")
	}
	switch {
	case !isToken(h.Name):
		return h, fmt.Errorf("%q is not the name of a header", h.Name)
	case strings.EqualFold(h.Name, "host"):
		return h, fmt.Errorf("the Host header has a place of its own in the description (--host)")
	case strings.ContainsFunc(h.Value, func(r rune) bool { return r != ' ' && r != '\t' && notVisible(r) }):
		return h, fmt.Errorf("the header %s has a value with characters that are not visible ASCII", h.Name)
	}
	return h, nil
}

func notVisible(r rune) bool { return r <= ' ' || r >= 0x7f }

// isToken reports whether a text is a token of HTTP: a method, or the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func (p *Parsed) parseClaims() error {
	if p.Claims == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(p.Claims), &p.Token); err != nil || p.Token == nil {
		return fmt.Errorf("the claims of the token are no JSON object, such as {\"iss\": \"https://issuer\", \"sub\": \"user\"}")
	}
	if issuer, ok := p.Token["iss"].(string); !ok || issuer == "" {
		return fmt.Errorf("the claims of the token name no issuer (iss)")
	}
	if slices.ContainsFunc(p.Sent.Headers, func(h access.Header) bool { return strings.EqualFold(h.Name, "authorization") }) {
		return fmt.Errorf("the request has a header authorization and claims of a token; describe the token by its claims only")
	}
	return nil
}

// Identify sets what a client in the mesh shows at a port of a service.
func (p *Parsed) Identify(trustDomain string, port mesh.Port) {
	p.Sent.HTTP2 = !p.TCP && port.Protocol.IsHTTP2()
	tls := &access.TLS{ServerName: p.ServerName, HasServerName: p.ServerName != ""}
	switch {
	case p.Plaintext || p.From == "" && p.ServerName == "":
		return
	case p.From == "": // a client that is not in the mesh
		tls.ALPN = []string{"h2", "http/1.1"}
	default:
		p.TrustDomain = cmp.Or(p.TrustDomain, trustDomain)
		tls.Identity = identity.Identity{TrustDomain: p.TrustDomain, Namespace: p.Namespace, ServiceAccount: p.Account}.String()
		tls.ALPN = envoy.MeshClientALPN(port.Protocol.IsHTTP() && !p.Sent.HTTP2, port.Protocol.IsHTTP2())
	}
	p.Sent.TLS = tls
}
