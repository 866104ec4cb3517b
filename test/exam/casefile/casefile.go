// Package casefile reads and checks case files of the exam, in the format that FORMAT.md describes.
//
// Values are read only once loaded; the package starts no goroutines.
package casefile

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Case is one exam case, as FORMAT.md describes it.
type Case struct {
	Title    string         `yaml:"title"`
	Spec     string         `yaml:"spec"`
	Tags     []string       `yaml:"tags"`
	Mesh     map[string]any `yaml:"mesh"`
	Networks map[string]any `yaml:"networks"`
	Proxy    Proxy          `yaml:"proxy"`
	Config   string         `yaml:"config"`
	Requests []Request      `yaml:"requests"`

	Path string `yaml:"-"` // the file it was read from
}

// Proxy is the one proxy of a case.
type Proxy struct {
	Type      string            `yaml:"type"`
	Namespace string            `yaml:"namespace"`
	Name      string            `yaml:"name"`
	SA        string            `yaml:"sa"`
	Labels    map[string]string `yaml:"labels"`
	Locality  string            `yaml:"locality"` // region/zone/subzone
	Network   string            `yaml:"network"`
	Metadata  map[string]any    `yaml:"metadata"` // added to the node metadata; null removes a key
}

// Request is one entry of `requests`; the driver receives it as JSON.
type Request struct {
	Name     string          `yaml:"name" json:"name"`
	From     string          `yaml:"from" json:"from"`
	Source   string          `yaml:"source" json:"source,omitempty"`
	To       string          `yaml:"to" json:"to"`
	HTTP     *HTTP           `yaml:"http" json:"http,omitempty"`
	TCP      *TCP            `yaml:"tcp" json:"tcp,omitempty"`
	TLS      *TLS            `yaml:"tls" json:"tls,omitempty"`
	Repeat   int             `yaml:"repeat" json:"repeat,omitempty"`
	Parallel int             `yaml:"parallel" json:"parallel,omitempty"`
	Fresh    bool            `yaml:"fresh" json:"fresh,omitempty"` // a new connection for every repetition
	Exact    bool            `yaml:"exact" json:"-"`               // counts are compared, not sets or shares
	Pause    Duration        `yaml:"pause" json:"pause,omitempty"`
	Timeout  Duration        `yaml:"timeout" json:"timeout,omitempty"`
	JWT      *JWT            `yaml:"jwt" json:"-"`
	JWTs     map[string]*JWT `yaml:"jwts" json:"-"` // named tokens, written as ${JWT:NAME} in path, host and header values
	Watch    []string        `yaml:"watch" json:"watch,omitempty"`
	Want     map[string]Want `yaml:"want" json:"-"` // the answer, where the case brings its own
}

// HTTP is a request of that protocol.
type HTTP struct {
	Method  string            `yaml:"method" json:"method"`
	Host    string            `yaml:"host" json:"host"`
	Path    string            `yaml:"path" json:"path"`
	Headers map[string]Values `yaml:"headers" json:"headers,omitempty"`
	Body    string            `yaml:"body" json:"body,omitempty"`
	Version string            `yaml:"version" json:"version"`
}

// TCP is a line to send.
type TCP struct {
	Send        string `yaml:"send" json:"send"`
	ServerFirst bool   `yaml:"serverFirst" json:"serverFirst"`
}

// TLS wraps a request.
type TLS struct {
	SNI         string   `yaml:"sni" json:"sni,omitempty"`
	ALPN        []string `yaml:"alpn" json:"alpn,omitempty"`
	As          string   `yaml:"as" json:"as,omitempty"` // ns/sa: present this mesh identity
	TrustDomain string   `yaml:"trustDomain" json:"-"`
	CA          string   `yaml:"ca" json:"ca,omitempty"`
	Min         string   `yaml:"min" json:"min,omitempty"` // TLS versions offered: 1.0 to 1.3
	Max         string   `yaml:"max" json:"max,omitempty"`
}

// JWT is a token to mint.
type JWT struct {
	Iss     string         `yaml:"iss"`
	Sub     string         `yaml:"sub"`
	Aud     Values         `yaml:"aud"`
	Claims  map[string]any `yaml:"claims"`
	Key     string         `yaml:"key"` // exam (default) | other
	Expired bool           `yaml:"expired"`
}

// Values is a string or a list of strings.
type Values []string

// UnmarshalYAML reads either form.
func (v *Values) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		var l []string
		if err := n.Decode(&l); err != nil {
			return err
		}
		*v = l
		return nil
	}
	var s string
	if err := n.Decode(&s); err != nil {
		return err
	}
	*v = Values{s}
	return nil
}

// Want is what a field of the answer is to be: the values, with their shares in percent if the list of them is a map.
type Want map[string]int

// UnmarshalYAML reads a value, a list of values that must all be met, or a map from values to shares.
func (w *Want) UnmarshalYAML(n *yaml.Node) error {
	*w = Want{}
	if n.Kind == yaml.MappingNode {
		return n.Decode((*map[string]int)(w))
	}
	var values Values
	if err := values.UnmarshalYAML(n); err != nil {
		return err
	}
	for _, v := range values {
		(*w)[v] = 0
	}
	return nil
}

// Duration is a time.Duration written as in Go ("300ms").
type Duration time.Duration

// UnmarshalYAML reads Go's notation.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = Duration(v)
	return nil
}

// Find lists the case files below paths (files or folders), sorted.
func Find(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !st.IsDir() {
			out = append(out, p)
			continue
		}
		err = filepath.WalkDir(p, func(f string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(f, ".yaml") {
				out = append(out, f)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Strings(out)
	return slices.Compact(out), nil
}

// Select loads the cases below paths whose path matches expr.
func Select(paths []string, expr string) ([]*Case, error) {
	match, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	files, err := Find(paths)
	if err != nil {
		return nil, err
	}
	var cases []*Case
	var errs []error
	for _, f := range files {
		if !match.MatchString(f) {
			continue
		}
		c, err := Load(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("no case file in %s matches %q", strings.Join(paths, ", "), expr))
	}
	return cases, errors.Join(errs...)
}

// Load reads and checks a case file.
func Load(path string) (*Case, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Case{Path: path}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil {
		return nil, located(path, err, 0)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a case file holds one document", path)
	}
	c.defaults()
	return c, c.check(b)
}

// located prefixes yaml errors ("line 7: ...") with the file.
func located(path string, err error, lineOffset int) error {
	var te *yaml.TypeError
	msgs := []string{err.Error()}
	if errors.As(err, &te) {
		msgs = te.Errors
	}
	for i, m := range msgs {
		m = strings.TrimPrefix(m, "yaml: ")
		var line int
		if n, _ := fmt.Sscanf(m, "line %d:", &line); n == 1 {
			_, m, _ = strings.Cut(m, ": ")
			msgs[i] = fmt.Sprintf("%s:%d: %s", path, line+lineOffset, m)
		} else {
			msgs[i] = fmt.Sprintf("%s: %s", path, m)
		}
	}
	return errors.New(strings.Join(msgs, "\n"))
}

// Default gives a variable that has no value one.
func Default[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Case) defaults() {
	p := &c.Proxy
	Default(&p.Type, "sidecar")
	if p.Type == "router" {
		Default(&p.Namespace, "istio-system")
		Default(&p.Name, "gw-0")
		Default(&p.SA, "gw")
		if p.Labels == nil {
			p.Labels = map[string]string{"istio": "ingressgateway"}
		}
	}
	Default(&p.Namespace, "shop")
	Default(&p.Name, "web-0")
	Default(&p.SA, "web")
	if p.Labels == nil {
		p.Labels = map[string]string{"app": "web"}
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.From == "" {
			r.From = "app"
			if p.Type == "router" {
				r.From = "net"
			}
		}
		r.To = fullAddress(r)
		Default(&r.Repeat, 1)
		Default(&r.Parallel, 1)
		Default(&r.Timeout, Duration(10*time.Second))
		if h := r.HTTP; h != nil {
			Default(&h.Method, "GET")
			Default(&h.Path, "/")
			Default(&h.Version, "1.1")
			Default(&h.Host, r.To)
		}
	}
}

// fullAddress completes `to`: from net, the proxy's address is the default.
func fullAddress(r *Request) string {
	port := "80"
	if r.TLS != nil {
		port = "443"
	}
	to := r.To
	if to == "" && r.From == "net" {
		return "10.76.0.2:" + port
	}
	if strings.HasPrefix(to, ":") {
		return "10.76.0.2" + to
	}
	if to != "" && strings.Trim(to, "0123456789") == "" {
		return "10.76.0.2:" + to
	}
	return to
}

// TLSVersions are the versions a case may name.
var TLSVersions = map[string]uint16{"": 0, "1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

var watchable = map[string]bool{"sni": true, "alpn": true, "peer": true, "proto": true, "time": true, "clientproto": true,
	"cert": true, "hits": true, "body": true, "source": true, "src": true}

func (c *Case) check(src []byte) error {
	var errs []error
	bad := func(needle, format string, a ...any) {
		line := 1 + bytes.Count(src[:max(0, bytes.Index(src, []byte(needle)))], []byte("\n"))
		errs = append(errs, fmt.Errorf("%s:%d: %s", c.Path, line, fmt.Sprintf(format, a...)))
	}
	if c.Title == "" {
		bad("", "title is missing")
	}
	if c.Proxy.Type != "sidecar" && c.Proxy.Type != "router" {
		bad("proxy:", "proxy type %q: want sidecar or router", c.Proxy.Type)
	}
	if len(c.Requests) == 0 {
		bad("", "no requests")
	}
	seen := map[string]bool{}
	for i := range c.Requests {
		r := &c.Requests[i]
		at := "name: " + r.Name
		if r.Name == "" {
			bad("requests:", "request %d has no name", i+1)
		}
		if seen[r.Name] {
			bad(at, "request name %q is used twice", r.Name)
		}
		seen[r.Name] = true
		if err := r.check(); err != nil {
			bad(at, "request %q: %v", r.Name, err)
		}
	}
	if n := c.wants(); n > 0 && n < len(c.Requests) {
		bad("want:", "some requests have a want and some have none: it is all of them or, with a stored answer, none")
	}
	if _, err := c.Documents(); err != nil {
		base := 1 + bytes.Count(src[:max(0, bytes.Index(src, []byte("config:")))], []byte("\n"))
		errs = append(errs, located(c.Path, err, base))
	}
	return errors.Join(errs...)
}

// wants counts the requests that bring their answer.
func (c *Case) wants() int {
	n := 0
	for i := range c.Requests {
		if len(c.Requests[i].Want) > 0 {
			n++
		}
	}
	return n
}

// Answered reports whether the case brings its own answer, and needs no stored one.
func (c *Case) Answered() bool { return c.wants() > 0 }

func (r *Request) check() error {
	switch {
	case r.From != "app" && r.From != "net":
		return fmt.Errorf("from %q: want app or net", r.From)
	case r.Source != "" && r.From != "net":
		return errors.New("source needs from: net")
	case r.To == "":
		return errors.New("to is missing")
	case (r.HTTP == nil) == (r.TCP == nil):
		return errors.New("want exactly one of http and tcp")
	case (r.JWT != nil || r.JWTs != nil) && r.HTTP == nil:
		return errors.New("jwt needs http")
	case r.HTTP != nil && !slices.Contains([]string{"1.0", "1.1", "2"}, r.HTTP.Version):
		return fmt.Errorf("http version %q: want 1.0, 1.1 or 2", r.HTTP.Version)
	}
	if r.Source != "" {
		if _, err := netip.ParseAddr(r.Source); err != nil {
			return err
		}
	}
	if t := r.TLS; t != nil {
		if !slices.Contains([]string{"", "any", "mesh", "public"}, t.CA) {
			return fmt.Errorf("tls ca %q: want mesh, public or any", t.CA)
		}
		if t.As != "" && strings.Count(t.As, "/") != 1 {
			return fmt.Errorf("tls as %q: want ns/sa", t.As)
		}
		for _, v := range []string{t.Min, t.Max} {
			if _, ok := TLSVersions[v]; !ok {
				return fmt.Errorf("tls version %q: want 1.0 to 1.3", v)
			}
		}
	}
	for field, w := range r.Want {
		if !slices.Contains([]string{"error", "status", "backend", "method", "path", "authority", "location", "body"}, field) && !slices.Contains(r.Watch, field) {
			return fmt.Errorf("want %q: it is not compared; watch it too", field)
		}
		if r.Repeat < 2 && len(w) > 1 {
			return fmt.Errorf("want %q: one request has one value", field)
		}
	}
	for _, w := range r.Watch {
		if !watchable[w] && !strings.HasPrefix(w, "req.") && !strings.HasPrefix(w, "resp.") {
			return fmt.Errorf("watch %q is unknown", w)
		}
	}
	return nil
}

// Documents parses the configuration; errors carry a line within `config`.
func (c *Case) Documents() ([]map[string]any, error) {
	var out []map[string]any
	d := yaml.NewDecoder(strings.NewReader(c.Config))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var m map[string]any
		if err := n.Decode(&m); err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		meta, _ := m["metadata"].(map[string]any)
		for _, want := range []struct {
			ok   bool
			what string
		}{{m["apiVersion"] != nil, "apiVersion"}, {m["kind"] != nil, "kind"}, {meta["name"] != nil, "metadata.name"}} {
			if !want.ok {
				return nil, fmt.Errorf("line %d: document without %s", n.Line, want.what)
			}
		}
		out = append(out, m)
	}
}

// Area is the folder a case lies in.
func (c *Case) Area() string { return filepath.Base(filepath.Dir(c.Path)) }

// Base is the case's name within its area.
func (c *Case) Base() string { return strings.TrimSuffix(filepath.Base(c.Path), ".yaml") }

// Name is what people and gaps.txt call the case: area/base.
func (c *Case) Name() string { return c.Area() + "/" + c.Base() }

// WantPath is the file of the stored answer.
func (c *Case) WantPath() string { return strings.TrimSuffix(c.Path, ".yaml") + ".want.json" }
