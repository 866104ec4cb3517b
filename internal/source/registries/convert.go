package registries

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// maxRemarks bounds the Problems of one service.
const maxRemarks = 20

// converted is what a service of a registry is in the mesh.
type converted struct {
	host string
	// exact is true if the name is the host's, in upper or lower case. Of services with one host, an exact one goes before others.
	exact    bool
	service  *registry.Service
	problems []api.Problem
	// refused is true if the service has no host, so that it is not served.
	refused bool
}

// converter turns services of one registry into services of the mesh.
type converter struct {
	entry  *Entry
	order  int
	domain string
}

// conversion is the work on one service.
type conversion struct {
	converter
	name    string
	from    *Service
	out     converted
	key     api.Key
	more    int // remarks beyond maxRemarks
	ports   map[uint32]*portUse
	weights []float64
}

// portUse is how instances use a port of a service.
type portUse struct {
	protocol mesh.Protocol
	mixed    bool
}

func (c converter) convert(name string, from *Service) converted {
	w := &conversion{converter: c, name: cmp.Or(from.Listed, name), from: from, ports: map[uint32]*portUse{}}
	w.out.host, w.out.exact = w.host()
	w.key = registry.ServiceKey(c.entry.Name, c.entry.Namespace, w.out.host)
	if reason := w.checkHost(); reason != "" {
		w.key.Name = ""
		w.out.refused = true
		w.Mark("registry-name", name, "%s", reason)
		return w.out
	}
	for _, u := range from.Unread {
		w.Mark("registry-unread", u.Place, "%s", u.Reason)
	}
	w.build()
	if w.more > 0 {
		w.more, w.out.problems = 0, w.out.problems[:maxRemarks-1]
		w.Mark("registry-unread", "", "more than %d parts of the service are not used; correct the ones that are listed to see others", maxRemarks)
	}
	return w.out
}

// Mark adds a Problem of the service.
func (w *conversion) Mark(c code.Code, place, format string, args ...any) {
	if len(w.out.problems) == maxRemarks {
		w.more++
		return
	}
	w.out.problems = append(w.out.problems, api.Problem{Object: w.key, Severity: api.Warning, Code: c, Field: place, Reason: fmt.Sprintf(format, args...)})
}

// host returns the host of the service, and whether its name needed no change but case.
func (w *conversion) host() (host string, exact bool) {
	plain := cleaned(w.from.HostName)
	for _, rule := range w.entry.Hosts {
		if globMatch(rule.Service, w.name) {
			host := strings.ReplaceAll(rule.Host, "{service}", plain)
			return strings.ToLower(strings.TrimSuffix(host, ".")), plain == strings.ToLower(w.from.HostName)
		}
	}
	suffix := cleaned(w.from.Suffix) // it may have names of the server in it, such as a group of Nacos
	exact = plain == strings.ToLower(w.from.HostName) && suffix == strings.ToLower(w.from.Suffix)
	if w.entry.HostSuffix != nil && w.entry.Type != Memory {
		suffix, exact = strings.ToLower(strings.Trim(*w.entry.HostSuffix, ".")), plain == strings.ToLower(w.from.HostName)
	}
	if suffix == "" {
		return plain, exact
	}
	return plain + "." + suffix, exact
}

// cleaned returns a name in lower case with hyphens for characters that no DNS name has.
func cleaned(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name), "-.")
}

// checkHost returns why the service cannot have its host.
func (w *conversion) checkHost() string {
	host := w.out.host
	if reason := syntax.FQDN(host); reason != "" {
		return fmt.Sprintf("its host would be %s; give it another one with hosts", reason)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return fmt.Sprintf("its host would be the address %s; give it another one with hosts", host)
	}
	mapped := w.entry.Type == Memory || slices.ContainsFunc(w.entry.Hosts, func(r HostRule) bool { return globMatch(r.Service, w.name) })
	if !mapped && (strings.HasSuffix(host, ".svc."+w.domain) || strings.HasSuffix(host, ".svc")) {
		return fmt.Sprintf("its host would be %s, which belongs to Kubernetes; only hosts lets a registry join such a host", host)
	}
	return ""
}

// build makes the service of the instances.
func (w *conversion) build() {
	e := w.entry
	s := &registry.Service{
		Order: w.order, Named: w.name, ExportTo: e.ExportTo, Scale: 1,
		Spec: &mesh.Service{Name: w.from.HostName, Namespace: e.Namespace, Resolution: mesh.Static, External: len(w.from.Instances) > 0, Dubbo: w.from.Dubbo},
	}
	vport := w.vport()
	var used []*Instance
	for _, in := range once(w.from.Instances) {
		address, named, reason := w.address(in.Address)
		if reason != "" {
			w.Mark("registry-instance", in.ID, "it is left out: its address %s", reason)
			continue
		}
		ports := w.usePorts(in, vport)
		if len(ports) == 0 {
			w.Mark("registry-instance", in.ID, "it is left out: it has no port")
			continue
		}
		if named {
			s.Spec.Resolution = mesh.DNS
		}
		s.Spec.External = s.Spec.External && in.External
		s.Endpoints = append(s.Endpoints, mesh.Endpoint{Address: address, OnlyPorts: true})
		used = append(used, in)
	}
	w.namePorts(s, used, vport)
	for i, in := range used {
		w.describe(&s.Endpoints[i], in)
	}
	s.Scale = scale(s.Endpoints, w.weights)
	w.out.service = s
}

// once returns the instances, of those at one address and port the first that may get traffic. An instance that comes back under another
// ID is listed twice for a moment.
func once(list []Instance) []*Instance {
	at := make(map[string]int, len(list))
	out := make([]*Instance, 0, len(list))
	for i := range list {
		in := &list[i]
		where := place(*in)
		j, twice := at[where]
		switch {
		case !twice:
			at[where] = len(out)
			out = append(out, in)
		case out[j].Down != "" && in.Down == "":
			out[j] = in
		}
	}
	return out
}

// vport is the only port of the service; 0 if it has the ports of its instances.
func (w *conversion) vport() uint32 {
	v := w.entry.VPort
	if v == nil {
		return 0
	}
	for _, s := range v.Services {
		if s.Name == w.name || s.Name == w.from.HostName {
			return s.Value
		}
	}
	return v.Default
}

// address checks the address of an instance. named is true for a name, which is resolved by DNS.
func (w *conversion) address(text string) (address string, named bool, reason string) {
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "["), "]")
	if text == "" {
		return "", false, "is empty"
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		if strings.EqualFold(strings.TrimSuffix(text, "."), "localhost") && !w.entry.AllowLoopback {
			return "", false, "is localhost, which would be the client itself; allowLoopback admits it"
		}
		if reason := syntax.FQDN(text); reason != "" {
			return "", false, "is neither an IP address nor a DNS name: " + reason
		}
		return strings.ToLower(text), true, ""
	}
	if reason := unusable(ip, w.entry.AllowLoopback); reason != "" || ip.Zone() != "" {
		return "", false, text + " " + cmp.Or(reason, "has a zone")
	}
	return ip.Unmap().String(), false, ""
}

// usePorts notes the ports of an instance. It returns the ports of the service that the instance serves.
func (w *conversion) usePorts(in *Instance, vport uint32) (numbers []uint32) {
	for _, p := range in.Ports {
		if !mesh.ValidPort(p.Number) {
			continue
		}
		number := cmp.Or(vport, p.Number)
		protocol := w.protocol(in, p)
		if p.Remark != "" {
			w.Mark("registry-protocol", in.ID, "%s", p.Remark)
		}
		u, ok := w.ports[number]
		switch {
		case !ok:
			w.ports[number] = &portUse{protocol: protocol}
		case u.protocol != protocol && !u.mixed:
			u.mixed = true
			w.Mark("registry-protocol", in.ID, "port %d is %s for it and %s for other instances, so that it is TCP for all; give all instances one protocol", number, protocol, u.protocol)
		}
		numbers = append(numbers, number)
		if vport != 0 {
			break
		}
	}
	return numbers
}

// protocol returns the protocol of a port of an instance.
func (w *conversion) protocol(in *Instance, p Port) mesh.Protocol {
	name := cmp.Or(p.Protocol, in.Labels["protocol"], w.entry.Protocol, w.from.Protocol, "http")
	protocol, ok := protocolOf(name)
	if !ok {
		w.Mark("registry-protocol", in.ID, "the protocol %q is unknown, so that port %d is TCP; write http, http2, grpc, https, tls, tcp, mongo, mysql or redis", name, p.Number)
		return mesh.TCP
	}
	return protocol
}

// protocolOf parses the name of a protocol, as ports of Services have it.
func protocolOf(name string) (mesh.Protocol, bool) {
	if strings.EqualFold(name, mesh.Dubbo.String()) {
		return mesh.Dubbo, true
	}
	p, ok := mesh.ParseProtocol(name)
	return p, ok && p != mesh.Auto && p != mesh.UDP && p != mesh.HTTPProxy
}

// namePorts gives the service its ports, and the endpoints theirs by the names of these.
func (w *conversion) namePorts(s *registry.Service, used []*Instance, vport uint32) {
	names := map[uint32]string{}
	for _, number := range slices.Sorted(maps.Keys(w.ports)) {
		u := w.ports[number]
		if u.mixed {
			u.protocol = mesh.TCP
		}
		names[number] = fmt.Sprintf("%s-%d", strings.ToLower(u.protocol.String()), number)
		s.Spec.Ports = append(s.Spec.Ports, mesh.Port{Number: number, Name: names[number], Protocol: u.protocol})
	}
	for i, in := range used {
		ports := make(map[string]uint32, len(in.Ports))
		for _, p := range in.Ports {
			if !mesh.ValidPort(p.Number) {
				continue
			}
			ports[names[cmp.Or(vport, p.Number)]] = cmp.Or(p.Target, p.Number)
			if vport != 0 {
				break
			}
		}
		s.Endpoints[i].Ports = ports
	}
}

// describe fills in what does not depend on the other instances.
func (w *conversion) describe(e *mesh.Endpoint, in *Instance) {
	labels := make(map[string]string, len(in.Labels))
	for k, v := range in.Labels {
		if syntax.ObjectLabel(k, v) == "" {
			labels[k] = v
		}
	}
	e.Labels = mesh.LabelsOf(labels)
	e.Locality = in.Locality
	if e.Locality == (mesh.Locality{}) && in.Labels["locality"] != "" {
		e.Locality = mesh.ParseLocality(in.Labels["locality"])
	}
	if e.Locality == (mesh.Locality{}) {
		e.Locality = mesh.Locality{Region: in.Labels["region"], Zone: in.Labels["zone"], SubZone: in.Labels["subzone"]}
	}
	e.Network = labels[mesh.NetworkLabel]
	e.MeshTLS = !in.External && labels[mesh.TLSModeLabel] == mesh.TLSModeMesh
	if in.Down != "" {
		e.Health = mesh.Unusable
	}
	weight := 1.0
	if in.Weight != "" {
		n, err := strconv.ParseFloat(in.Weight, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
			w.Mark("registry-weight", in.ID, "its weight %q is no number from 0, so that it is 1", in.Weight)
			n = 1
		}
		weight = n
	}
	if weight == 0 {
		e.Health = mesh.Unusable
	}
	w.weights = append(w.weights, weight)
}

// The scale of weights: they are multiplied by a power of ten so that rounding changes none by more than half a per cent, and bounded so
// that Envoy's sum of them fits into 32 bits.
const (
	maxScale  = 1000000
	leastUnit = 100
)

// scale sets the weights of endpoints, and returns how many units of them are the weight 1.
func scale(list []mesh.Endpoint, weights []float64) uint32 {
	by := 1.0
	fits := func(n float64) bool { return n == math.Trunc(n) || n >= leastUnit }
	for by < maxScale && slices.ContainsFunc(weights, func(n float64) bool { return n > 0 && !fits(n*by) }) {
		by *= 10
	}
	most := 1.0
	for _, n := range weights {
		most = max(most, n*by)
	}
	for by > 1 && most > math.MaxUint32/4 {
		by, most = by/10, most/10
	}
	for i, n := range weights {
		list[i].Weight = uint32(min(max(math.Round(n*by), 1), math.MaxUint32/4))
	}
	return uint32(by)
}
