package registries

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
)

// The types of registries.
const (
	Consul    = "consul"
	ZooKeeper = "zookeeper"
	Nacos     = "nacos"
	Eureka    = "eureka"
	Memory    = "memory"
	MCP       = "mcp"
)

// File is the content of a registries file.
type File struct {
	Registries []Entry           `yaml:"registries"`
	Migrations []MigrationWeight `yaml:"migrations"`
}

// MigrationWeight is how registries share the traffic of a host.
type MigrationWeight struct {
	Host    string            `yaml:"host"`
	Weights map[string]uint32 `yaml:"weights"`
}

// Entry is one registry of the file, complete with its defaults.
type Entry struct {
	Type          string        `yaml:"type"`
	Name          string        `yaml:"name"`
	Domain        string        `yaml:"domain"`
	Port          uint16        `yaml:"port"`
	Addresses     []string      `yaml:"addresses"`
	Scheme        string        `yaml:"scheme"`
	TLS           *TLSFiles     `yaml:"tls"`
	AuthFile      string        `yaml:"authFile"`
	Namespace     string        `yaml:"namespace"`
	ExportTo      []string      `yaml:"exportTo"`
	HostSuffix    *string       `yaml:"hostSuffix"`
	Protocol      string        `yaml:"protocol"`
	VPort         *VPort        `yaml:"vport"`
	Include       []string      `yaml:"include"`
	Exclude       []string      `yaml:"exclude"`
	Hosts         []HostRule    `yaml:"hosts"`
	Required      *bool         `yaml:"required"`
	ReadyTimeout  time.Duration `yaml:"readyTimeout"`
	Refresh       time.Duration `yaml:"refreshInterval"`
	Protection    Protection    `yaml:"protection"`
	AllowLoopback bool          `yaml:"allowLoopback"`

	ConsulDatacenter  string        `yaml:"consulDatacenter"`
	ConsulNamespace   string        `yaml:"consulNamespace"`
	ConsulPartition   string        `yaml:"consulPartition"`
	ConsulServiceTag  string        `yaml:"consulServiceTag"`
	ConsulOnlyPassing bool          `yaml:"consulOnlyPassing"`
	ConsulWait        time.Duration `yaml:"-"` // --consulserverInterval

	ZKDubboPath      []string      `yaml:"zkDubboPath"`
	ZKServicesPath   []string      `yaml:"zkServicesPath"`
	ZKSessionTimeout time.Duration `yaml:"zkSessionTimeout"`

	NacosNamespaceID string   `yaml:"nacosNamespaceId"`
	NacosGroups      []string `yaml:"nacosGroups"`

	Services []WrittenService `yaml:"services"`
}

// TLSFiles are the files for TLS with the server of a registry.
type TLSFiles struct {
	CAFile             string `yaml:"caFile"`
	CertFile           string `yaml:"certFile"`
	KeyFile            string `yaml:"keyFile"`
	SNI                string `yaml:"sni"`
	InsecureSkipVerify bool   `yaml:"insecureSkipVerify"`
	// Names, if any, replace the name of the server: its certificate must have one of them.
	Names []string `yaml:"-"`
}

func (t *TLSFiles) equal(o *TLSFiles) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.CAFile == o.CAFile && t.CertFile == o.CertFile && t.KeyFile == o.KeyFile && t.SNI == o.SNI &&
		t.InsecureSkipVerify == o.InsecureSkipVerify && slices.Equal(t.Names, o.Names)
}

// VPort gives services one port in the place of the ports of their instances.
type VPort struct {
	Default  uint32        `yaml:"default"`
	Services []ServicePort `yaml:"services"`
}

// ServicePort is the port of a service, which is named as in the registry.
type ServicePort struct {
	Name  string `yaml:"name"`
	Value uint32 `yaml:"value"`
}

// HostRule gives services whose name in the registry matches a glob another host.
type HostRule struct {
	Service string `yaml:"service"`
	Host    string `yaml:"host"`
}

// Protection is when a first list that would take away many instances is held.
type Protection struct {
	Threshold *float64       `yaml:"threshold"`
	Minimum   *int           `yaml:"minimum"`
	Hold      *time.Duration `yaml:"hold"`
}

// WrittenService is a service in the file itself.
type WrittenService struct {
	Host      string            `yaml:"host"`
	Ports     []WrittenPort     `yaml:"ports"`
	Endpoints []WrittenEndpoint `yaml:"endpoints"`
}

// WrittenPort is a port of such a service.
type WrittenPort struct {
	Number   uint32 `yaml:"number"`
	Protocol string `yaml:"protocol"`
}

// WrittenEndpoint is an endpoint of such a service. Ports maps ports of the service to other ports of the endpoint.
type WrittenEndpoint struct {
	Address  string            `yaml:"address"`
	Ports    map[string]uint32 `yaml:"ports"`
	Weight   *float64          `yaml:"weight"`
	Labels   map[string]string `yaml:"labels"`
	Locality string            `yaml:"locality"`
}

// Decode reads the content of a registries file. It returns all that is wrong with it, with lines and paths.
func Decode(data []byte) (*File, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	if len(root.Content) == 0 {
		return nil, errors.New("it is empty; write registries: [] if there are none") // a file that is being written must not remove all registries
	}
	if errs := unknownFields(root.Content[0], fileFields(), ""); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	f := &File{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has several documents; write all registries into one")
	}
	return f, f.complete()
}

// fields are the fields of a mapping, with the fields below them; nil for values without known fields.
type fields map[string]fields

func fileFields() fields {
	entry := fields{
		"tls":   {"caFile": nil, "certFile": nil, "keyFile": nil, "sni": nil, "insecureSkipVerify": nil},
		"vport": {"default": nil, "services": {"name": nil, "value": nil}}, "hosts": {"service": nil, "host": nil},
		"protection": {"threshold": nil, "minimum": nil, "hold": nil},
		"services":   {"host": nil, "ports": {"number": nil, "protocol": nil}, "endpoints": {"address": nil, "ports": nil, "weight": nil, "labels": nil, "locality": nil}},
	}
	for _, name := range strings.Fields(`type name domain port addresses scheme authFile namespace exportTo hostSuffix protocol include exclude required
		readyTimeout refreshInterval allowLoopback consulDatacenter consulNamespace consulPartition consulServiceTag consulOnlyPassing zkDubboPath
		zkServicesPath zkSessionTimeout nacosNamespaceId nacosGroups`) {
		entry[name] = nil
	}
	return fields{"registries": entry, "migrations": {"host": nil, "weights": nil}}
}

// unknownFields finds the fields of a document that are not known. A list is checked item by item.
func unknownFields(n *yaml.Node, known fields, at string) (errs []error) {
	switch {
	case known == nil:
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			errs = append(errs, unknownFields(item, known, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case n.Kind == yaml.AliasNode:
		errs = unknownFields(n.Alias, known, at)
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			below, ok := known[name]
			to := strings.TrimPrefix(at+"."+name, ".")
			if !ok {
				errs = append(errs, fmt.Errorf("line %d: %s: unknown field; the fields are %s", n.Content[i].Line, to, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
				continue
			}
			errs = append(errs, unknownFields(n.Content[i+1], below, to)...)
		}
	}
	return errs
}

// complete checks the file and sets the defaults.
func (f *File) complete() error {
	var errs []error
	names := map[string]int{}
	for i := range f.Registries {
		e := &f.Registries[i]
		for _, err := range e.complete() {
			errs = append(errs, fmt.Errorf("registries[%d].%w", i, err))
		}
		if j, twice := names[e.Name]; twice {
			errs = append(errs, fmt.Errorf("registries[%d].name: registries[%d] has the name %q, too; give each registry a name of its own", i, j, e.Name))
		}
		names[e.Name] = i
	}
	hosts := map[string]bool{}
	for i := range f.Migrations {
		m := &f.Migrations[i]
		m.Host = strings.ToLower(strings.TrimSuffix(m.Host, "."))
		switch {
		case m.Host == "":
			errs = append(errs, fmt.Errorf("migrations[%d].host: it is missing; name the host whose traffic is shared", i))
		case hosts[m.Host]:
			errs = append(errs, fmt.Errorf("migrations[%d].host: %s has a migration already; write all weights into one", i, m.Host))
		}
		hosts[m.Host] = true
	}
	return errors.Join(errs...)
}

// complete checks an entry and sets its defaults. Errors begin with the field.
func (e *Entry) complete() (errs []error) {
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if e.Type == "nacos2" || e.Type == "nacos3" {
		e.Type = Nacos
	}
	switch e.Type {
	case Consul, ZooKeeper, Nacos, Eureka, Memory, MCP:
	case "":
		wrong("type", "it is missing; write consul, zookeeper, nacos, eureka, mcp or memory")
	default:
		wrong("type", "%q is unknown; write consul, zookeeper, nacos, eureka, mcp or memory", e.Type)
	}
	e.Name = cmp.Or(e.Name, e.Type)
	if e.Name == registry.Kubernetes || e.Name == registry.ServiceEntry || strings.ContainsFunc(e.Name, func(r rune) bool { return r <= ' ' || r == '|' }) {
		wrong("name", "%q cannot be the name of a registry: the names Kubernetes and ServiceEntry are taken, and spaces and | are not allowed", e.Name)
	}
	e.completeAddresses(wrong)
	e.completeTLS(wrong)
	e.completeServices(wrong)
	e.completeTimes(wrong)
	return errs
}

// completeAddresses checks how the server is reached.
func (e *Entry) completeAddresses(wrong func(field, format string, args ...any)) {
	if e.Domain != "" {
		if len(e.Addresses) > 0 {
			wrong("domain", "addresses are set, too; write one of them")
		}
		if e.Port == 0 {
			wrong("port", "it is missing; domain needs the port of the server")
		}
		e.Addresses = []string{net.JoinHostPort(strings.Trim(e.Domain, "[]"), strconv.Itoa(int(e.Port)))}
	}
	if len(e.Addresses) == 0 && e.Type != Memory {
		wrong("addresses", "it is missing; write the server as HOST:PORT")
	}
	for i, a := range e.Addresses {
		host, port, err := net.SplitHostPort(a)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			wrong(fmt.Sprintf("addresses[%d]", i), "%q is not HOST:PORT; an IPv6 address is in brackets", a)
		}
	}
}

// completeTLS checks how the connection to the server is secured.
func (e *Entry) completeTLS(wrong func(field, format string, args ...any)) {
	switch {
	case e.Scheme == "" && e.TLS != nil:
		e.Scheme = "https"
	case e.Scheme == "":
		e.Scheme = "http"
	case e.Scheme == "https" && e.TLS == nil:
		e.TLS = &TLSFiles{}
	case e.Scheme == "http" && e.TLS != nil:
		wrong("scheme", "it is http, but tls is set; remove one of them")
	case e.Scheme != "http" && e.Scheme != "https":
		wrong("scheme", "%q is neither http nor https", e.Scheme)
	}
	if e.TLS != nil && (e.TLS.CertFile == "") != (e.TLS.KeyFile == "") {
		wrong("tls", "certFile and keyFile belong together; set both")
	}
	for i, a := range e.Addresses {
		if e.Type != MCP || onLoopback(a) {
			continue
		}
		switch at := fmt.Sprintf("addresses[%d]", i); {
		case e.TLS == nil:
			wrong(at, "%s can only be read over TLS, because its configuration decides about access in the mesh; set tls with a caFile", a)
		case e.TLS.InsecureSkipVerify:
			wrong("tls.insecureSkipVerify", "the identity of %s must be verified, because its configuration decides about access in the mesh; set caFile, and sni if the certificate has another name", a)
		}
	}
}

// onLoopback reports whether a server is on this machine.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, bad := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || bad == nil && ip.Unmap().IsLoopback())
}

// completeServices checks what becomes of the services.
func (e *Entry) completeServices(wrong func(field, format string, args ...any)) {
	e.Namespace = cmp.Or(e.Namespace, "default")
	if reason := api.CheckNames(e.Namespace, "any"); reason != "" {
		wrong("namespace", "%s", reason)
	}
	if len(e.ExportTo) == 0 {
		e.ExportTo = []string{"*"}
	}
	if e.Protocol != "" {
		if _, ok := protocolOf(e.Protocol); !ok {
			wrong("protocol", "%q is unknown; write http, http2, grpc, https, tls, tcp, mongo, mysql or redis", e.Protocol)
		}
	}
	if v := e.VPort; v != nil {
		for i, s := range append([]ServicePort{{Value: v.Default}}, v.Services...) {
			if s.Value > 65535 || i > 0 && (s.Value == 0 || s.Name == "") {
				wrong("vport", "the port of %q is %d; it must be from 1 to 65535", cmp.Or(s.Name, "default"), s.Value)
			}
		}
	}
	for _, list := range []struct {
		field string
		globs []string
	}{{"include", e.Include}, {"exclude", e.Exclude}} {
		for i, g := range list.globs {
			if _, err := path.Match(g, ""); err != nil {
				wrong(fmt.Sprintf("%s[%d]", list.field, i), "%q is no glob; * and ? match characters, [ needs ]", g)
			}
		}
	}
	for i, h := range e.Hosts {
		if _, err := path.Match(h.Service, ""); err != nil || h.Service == "" || h.Host == "" {
			wrong(fmt.Sprintf("hosts[%d]", i), "it needs service, a name or glob, and host")
		}
	}
	e.completeWritten(wrong)
}

// completeWritten checks the services in the file itself.
func (e *Entry) completeWritten(wrong func(field, format string, args ...any)) {
	if len(e.Services) > 0 && e.Type != Memory {
		wrong("services", "only a registry of type memory has services in the file")
	}
	hosts := map[string]bool{}
	for i, s := range e.Services {
		if hosts[strings.ToLower(s.Host)] {
			wrong(fmt.Sprintf("services[%d].host", i), "%s occurs twice; write all of its endpoints into one", s.Host)
		}
		hosts[strings.ToLower(s.Host)] = true
		if s.Host == "" || len(s.Ports) == 0 {
			wrong(fmt.Sprintf("services[%d]", i), "it needs host and ports")
		}
		for j, p := range s.Ports {
			if p.Number == 0 || p.Number > 65535 {
				wrong(fmt.Sprintf("services[%d].ports[%d].number", i, j), "%d is not from 1 to 65535", p.Number)
			}
		}
	}
}

// completeTimes checks durations and the settings of the protection.
func (e *Entry) completeTimes(wrong func(field, format string, args ...any)) {
	if e.Required == nil {
		e.Required = new(true)
	}
	for _, d := range []struct {
		field              string
		value              *time.Duration
		otherwise, atLeast time.Duration
	}{
		{"readyTimeout", &e.ReadyTimeout, 10 * time.Second, time.Millisecond}, {"refreshInterval", &e.Refresh, 5 * time.Second, time.Second},
		{"zkSessionTimeout", &e.ZKSessionTimeout, 10 * time.Second, time.Second}, {"consulserverInterval", &e.ConsulWait, 5 * time.Minute, time.Millisecond},
	} {
		*d.value = cmp.Or(*d.value, d.otherwise)
		if *d.value < d.atLeast {
			wrong(d.field, "%v is too short; at least %v", *d.value, d.atLeast)
		}
	}
	p := &e.Protection
	if p.Threshold == nil {
		p.Threshold = new(0.5)
	}
	if p.Minimum == nil {
		p.Minimum = new(2)
	}
	if p.Hold == nil {
		p.Hold = new(time.Minute)
	}
	if *p.Threshold < 0 || *p.Threshold > 1 || *p.Minimum < 0 || *p.Hold < 0 {
		wrong("protection", "threshold is from 0 to 1, minimum and hold are not negative")
	}
	e.NacosNamespaceID = cmp.Or(e.NacosNamespaceID, "public")
	for _, l := range []struct {
		list      *[]string
		otherwise string
	}{{&e.NacosGroups, "DEFAULT_GROUP"}, {&e.ZKDubboPath, "/dubbo"}, {&e.ZKServicesPath, "/services"}} {
		if *l.list == nil {
			*l.list = []string{l.otherwise}
		}
	}
}

// Active reports whether a service of the registry is read: include and exclude decide by its name there.
func (e *Entry) Active(service string) bool {
	matches := func(globs []string) bool {
		return slices.ContainsFunc(globs, func(g string) bool { return globMatch(g, service) })
	}
	return (len(e.Include) == 0 || matches(e.Include)) && !matches(e.Exclude)
}

// globMatch matches a glob whose * matches all characters, slashes too.
func globMatch(glob, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// sameReader reports whether two entries are read by equal readers: they differ at most in what becomes of the services.
func (e *Entry) sameReader(o *Entry) bool {
	return e.TLS.equal(o.TLS) && e.Type == o.Type && e.Name == o.Name && e.Scheme == o.Scheme && e.AuthFile == o.AuthFile && e.Refresh == o.Refresh &&
		slices.Equal(e.Addresses, o.Addresses) && slices.Equal(e.Include, o.Include) && slices.Equal(e.Exclude, o.Exclude) &&
		e.ConsulDatacenter == o.ConsulDatacenter && e.ConsulNamespace == o.ConsulNamespace && e.ConsulPartition == o.ConsulPartition &&
		e.ConsulServiceTag == o.ConsulServiceTag && e.ConsulOnlyPassing == o.ConsulOnlyPassing && e.ConsulWait == o.ConsulWait &&
		slices.Equal(e.ZKDubboPath, o.ZKDubboPath) && slices.Equal(e.ZKServicesPath, o.ZKServicesPath) && e.ZKSessionTimeout == o.ZKSessionTimeout &&
		e.NacosNamespaceID == o.NacosNamespaceID && slices.Equal(e.NacosGroups, o.NacosGroups) && e.Type != Memory
}

// unusable reports why proxies cannot be sent to an IP address; empty if they can.
func unusable(ip netip.Addr, loopback bool) string {
	ip = ip.Unmap()
	switch {
	case ip.IsUnspecified():
		return "is no address of one machine"
	case ip.IsLoopback() && !loopback:
		return "is a loopback address, which would be the client itself; allowLoopback admits it"
	case ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsMulticast():
		return "is link-local or multicast"
	}
	return ""
}
