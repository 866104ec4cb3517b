package object

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// The annotations of services that are read.
const (
	exportToAnnotation     = "networking.istio.io/exportTo"
	accountsAnnotation     = "alpha.istio.io/kubernetes-serviceaccounts"
	identitiesAnnotation   = "alpha.istio.io/canonical-serviceaccounts"
	distributionAnnotation = "networking.istio.io/traffic-distribution"

	// gatewayPortLabel is the label with the port of a Service that leads into a network.
	gatewayPortLabel = "networking.istio.io/gatewayPort"
	// nodeSelectorAnnotation has, as JSON, the labels of the nodes at which a Service of type NodePort is reached from other networks.
	nodeSelectorAnnotation = "traffic.istio.io/nodeSelector"
)

// Service returns the value of a Service; nil if it has none.
func (c *Converter) Service(s *core.Service) *kube.Service {
	v := &kube.Service{
		Written:         c.Written,
		Created:         Created(s.ObjectMeta),
		Ports:           make([]kube.ServicePort, 0, len(s.Spec.Ports)),
		Selector:        mesh.LabelsOf(s.Spec.Selector),
		ExportTo:        list(s.Annotations[exportToAnnotation]),
		ServiceAccounts: list(s.Annotations[accountsAnnotation]),
		Identities:      list(s.Annotations[identitiesAnnotation]),
		Annotation:      s.Annotations[distributionAnnotation],
		NodeLocal:       s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == core.ServiceInternalTrafficPolicyLocal,
	}
	_, v.SamePorts = s.Labels[mesh.SamePortsLabel]
	v.Session = mesh.SessionOf(s.Labels)
	if s.Spec.Type != core.ServiceTypeExternalName {
		v.Entrance = c.entrance(s)
	}
	if s.Spec.TrafficDistribution != nil {
		v.Distribution = *s.Spec.TrafficDistribution
	}
	switch {
	case s.Spec.Type == core.ServiceTypeExternalName:
		v.Type = kube.ExternalName
		v.ExternalName = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))
	case s.Spec.ClusterIP == core.ClusterIPNone:
		v.Type = kube.Headless
	case s.Spec.ClusterIP == "":
		if !c.Written {
			return nil // the address will be assigned
		}
	default:
		v.Addresses = slices.Clone(s.Spec.ClusterIPs)
		if !slices.Contains(v.Addresses, s.Spec.ClusterIP) {
			v.Addresses = append(v.Addresses, s.Spec.ClusterIP)
		}
	}
	v.DualStack = c.Written && bothVersions(&s.Spec)
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Protocol != core.ProtocolSCTP || !hasTCP(s.Spec.Ports, p.Port) {
			v.Ports = append(v.Ports, c.servicePort(p))
		}
	}
	return v
}

// hasTCP reports whether one of the ports takes TCP connections at a number.
func hasTCP(ports []core.ServicePort, number int32) bool {
	return slices.ContainsFunc(ports, func(p core.ServicePort) bool {
		return p.Port == number && p.Protocol != core.ProtocolUDP && p.Protocol != core.ProtocolSCTP
	})
}

// bothVersions reports whether a Service says that it has addresses, or endpoints, of both IP versions.
func bothVersions(s *core.ServiceSpec) bool {
	policy := core.IPFamilyPolicySingleStack
	if s.IPFamilyPolicy != nil {
		policy = *s.IPFamilyPolicy
	}
	return len(s.IPFamilies) > 1 || policy != core.IPFamilyPolicySingleStack || mesh.FamiliesOf(s.ClusterIPs).Two()
}

// entrance returns how a Service is reached from other networks.
func (c *Converter) entrance(s *core.Service) kube.Entrance {
	e := kube.Entrance{Network: strings.Clone(s.Labels[mesh.NetworkLabel])}
	if n, err := strconv.ParseUint(s.Labels[gatewayPortLabel], 10, 16); err == nil {
		e.Port = uint32(n)
	}
	var list []string
	add := func(address string) {
		if address != "" && !slices.Contains(list, address) {
			list = append(list, strings.Clone(address))
		}
	}
	if s.Spec.Type == core.ServiceTypeLoadBalancer {
		for _, in := range s.Status.LoadBalancer.Ingress {
			add(in.IP)
			if in.IP == "" {
				add(in.Hostname)
			}
		}
	}
	for _, address := range s.Spec.ExternalIPs {
		add(address)
	}
	e.Addresses = intern.Of(list...)
	if selector, ok := s.Annotations[nodeSelectorAnnotation]; ok && s.Spec.Type == core.ServiceTypeNodePort {
		selectNodes(&e, selector, s.Spec.Ports)
	}
	return e
}

// selectNodes has a Service reached at the ports of nodes. A selector that cannot be read selects no node, and an empty one all.
func selectNodes(e *kube.Entrance, selector string, ports []core.ServicePort) {
	labels := map[string]string{}
	if selector != "" && json.Unmarshal([]byte(selector), &labels) != nil {
		return
	}
	var list []kube.NodePort
	for _, p := range ports {
		if node := port(p.NodePort); node != 0 {
			list = append(list, kube.NodePort{Port: port(p.Port), Node: node})
		}
	}
	e.ByNode, e.NodeLabels, e.NodePorts = true, mesh.LabelsOf(labels), intern.Of(list...)
}

func (c *Converter) servicePort(p *core.ServicePort) kube.ServicePort {
	out := kube.ServicePort{
		Name: c.Texts.Of(p.Name), Number: port(p.Port), Protocol: protocol(p.Protocol, p.AppProtocol, p.Name, p.Port), Target: port(p.Port),
	}
	switch p.TargetPort.Type {
	case intstr.Int:
		if n := port(p.TargetPort.IntVal); n != 0 {
			out.Target = n
		}
	case intstr.String:
		if n, err := strconv.ParseUint(p.TargetPort.StrVal, 10, 16); err == nil && n > 0 {
			out.Target = uint32(n)
		} else if p.TargetPort.StrVal != "" {
			out.Target, out.TargetName = 0, c.Texts.Of(p.TargetPort.StrVal)
		}
	}
	return out
}

// port returns the number of a port; 0 if it is none.
func port(n int32) uint32 {
	if n <= 0 || n > 65535 {
		return 0
	}
	return uint32(n)
}

// Created returns the time of creation in microseconds since 1970; 0 if it is not known.
func Created(m metav1.ObjectMeta) int64 {
	if m.CreationTimestamp.IsZero() {
		return 0
	}
	return m.CreationTimestamp.UnixMicro()
}

// list splits the text of an annotation at commas.
func list(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, strings.Clone(item))
		}
	}
	return items
}

// protocol returns the protocol of a port of a service. UDP decides first, then appProtocol, or the name of the port if it is not set. If
// that names no known protocol, the number decides, for protocols in which the server speaks first: detection would wait for first bytes of the
// client that never come. A port for SCTP is declared like one for TCP, as in Istio: no SCTP is captured, so nothing depends on it.
func protocol(transport core.Protocol, app *string, name string, number int32) mesh.Protocol {
	if transport == core.ProtocolUDP {
		return mesh.UDP
	}
	if app != nil {
		name = appProtocolName(*app)
	}
	if p, known := namedProtocol(name); known {
		return p
	}
	switch number {
	case 25, 53, 3306, 27017: // SMTP, DNS, MySQL, MongoDB
		return mesh.TCP
	}
	return mesh.Auto
}

// appProtocolName returns the name of a protocol for the names that Kubernetes defines.
func appProtocolName(name string) string {
	switch strings.ToLower(name) {
	case "kubernetes.io/h2c":
		return "http2"
	case "kubernetes.io/ws":
		return "http"
	case "kubernetes.io/wss":
		return "https"
	}
	return name
}

// namedProtocol returns the protocol that the part of a name before the first '-' names.
func namedProtocol(name string) (p mesh.Protocol, known bool) {
	const web = "grpc-web"
	if len(name) >= len(web) && strings.EqualFold(name[:len(web)], web) && (len(name) == len(web) || name[len(web)] == '-') {
		return mesh.GRPCWeb, true
	}
	first, _, _ := strings.Cut(name, "-")
	if p, known = mesh.ParseProtocol(first); !known || p == mesh.Auto {
		return mesh.Auto, false
	}
	return p, true
}

// isAddress reports whether a text is an IP address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
