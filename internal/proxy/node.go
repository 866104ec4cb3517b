package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Limits for nodes, far above the sizes that agents send. The metadata of a node is kept as long as its stream lasts.
// Labels have the limits of Kubernetes: a prefix of 253 bytes, a slash and a name of 63, and a value of 63.
const (
	maxNodeID     = 1 << 10
	maxText       = 1 << 10
	maxLabels     = 100
	maxLabelName  = 253 + 1 + 63
	maxLabelValue = 63
	maxAddresses  = 16
	// maxExtensions is how many extensions an Envoy may name, and maxExtension the length of a name. An Envoy with all that there are has
	// about 600.
	maxExtensions = 2000
	maxExtension  = 256
)

// ErrNamespace means that a node names two namespaces: one in its id, and another one in its metadata.
var ErrNamespace = errors.New("the node id and the metadata name different namespaces")

// A proxy that cannot have a certificate of the mesh says so in its metadata, and one whose certificates come from an authority other than the control
// plane. Nothing of Istio's says either.
const (
	certificatesKey = "WORKLOAD_CERTIFICATES"
	noCertificates  = "none"
	otherAuthority  = "other-authority"
)

// bootstrapKey is the key of the metadata by which an agent asks for patches of the bootstrap. Its value is the role of the agent's proxy.
const bootstrapKey = "BOOTSTRAP_OF"

// Node is the node in the first request of a proxy.
type Node struct {
	ID         string
	Metadata   *structpb.Struct
	Locality   mesh.Locality
	Extensions []string
	// Envoy is the minor version of its Envoy 1; 0 if it is not reported.
	Envoy uint32
}

// Parse parses a node. Its error names the field that is wrong.
func Parse(n Node) (*Proxy, error) {
	if n.ID == "" {
		return nil, fmt.Errorf("node id is empty; want role~address~name.namespace~domain")
	}
	if len(n.ID) > maxNodeID {
		return nil, fmt.Errorf("node id of %d bytes is longer than %d", len(n.ID), maxNodeID)
	}
	parts := strings.Split(n.ID, "~")
	if len(parts) != 4 {
		return nil, fmt.Errorf("node id %q has %d parts; want role~address~name.namespace~domain", n.ID, len(parts))
	}
	p := &Proxy{ID: n.ID, Role: Role(parts[0]), Domain: parts[3], Locality: n.Locality, Envoy: n.Envoy}
	if p.Role != Sidecar && p.Role != Router && p.Role != Agent {
		return nil, fmt.Errorf("node id %q: role %q is not supported; want %q or %q", n.ID, parts[0], Sidecar, Router)
	}
	if _, err := netip.ParseAddr(parts[1]); err != nil {
		return nil, fmt.Errorf("node id %q: address %q: %w", n.ID, parts[1], err)
	}
	p.Addresses = []string{parts[1]}
	// A name may contain dots, a namespace cannot.
	dot := strings.LastIndexByte(parts[2], '.')
	if dot <= 0 || dot == len(parts[2])-1 {
		return nil, fmt.Errorf("node id %q: %q is not name.namespace", n.ID, parts[2])
	}
	p.Name, p.Namespace = parts[2][:dot], parts[2][dot+1:]
	if err := checkSizes(n); err != nil {
		return nil, fmt.Errorf("node %q: %w", n.ID, err)
	}
	p.Metadata = n.Metadata
	p.Extensions = slices.Compact(slices.Sorted(slices.Values(n.Extensions)))
	if err := p.readMetadata(n.Metadata); err != nil {
		return nil, fmt.Errorf("node %q: metadata %w", n.ID, err)
	}
	return p, nil
}

// checkSizes checks the fields that are neither the id nor the metadata.
func checkSizes(n Node) error {
	if len(n.Extensions) > maxExtensions {
		return fmt.Errorf("%d extensions are more than %d", len(n.Extensions), maxExtensions)
	}
	for _, e := range n.Extensions {
		if len(e) > maxExtension {
			return fmt.Errorf("the name of an extension has %d bytes, and the most is %d", len(e), maxExtension)
		}
	}
	for _, part := range []string{n.Locality.Region, n.Locality.Zone, n.Locality.SubZone} {
		if len(part) > maxText {
			return fmt.Errorf("a part of the locality has %d bytes, and the most is %d", len(part), maxText)
		}
	}
	return nil
}

// ownPorts returns the ports at which Envoy and the agent listen by the metadata of the node, unless all proxies have them.
func ownPorts(m *structpb.Struct) intern.List[uint32] {
	config := m.GetFields()["PROXY_CONFIG"].GetStructValue().GetFields()
	var list []uint32
	for _, v := range []*structpb.Value{
		m.GetFields()["ENVOY_STATUS_PORT"], m.GetFields()["ENVOY_PROMETHEUS_PORT"], config["statusPort"], config["proxyAdminPort"],
	} {
		n := v.GetNumberValue()
		if text := v.GetStringValue(); text != "" {
			number, _ := strconv.ParseUint(text, 10, 16) // another text names no port
			n = float64(number)
		}
		if n > 0 && n < 1<<16 && !mesh.OwnPort(uint32(n)) {
			list = append(list, uint32(n))
		}
	}
	slices.Sort(list)
	return intern.Of(slices.Compact(list)...)
}

func (p *Proxy) readMetadata(m *structpb.Struct) error {
	var namespace, mode, addresses, http10, idle, generator, certificates, dns, unprivileged, split, networks, onDemand, demand, bootstrap, balanceIn, balanceOut string
	for _, f := range []struct {
		name string
		into *string
	}{
		{"NAMESPACE", &namespace}, {"CLUSTER_ID", &p.ClusterID}, {"NETWORK", &p.Network}, {"NODE_NAME", &p.Node}, {"ISTIO_VERSION", &p.Version},
		{"INTERCEPTION_MODE", &mode}, {"INSTANCE_IPS", &addresses}, {"HTTP10", &http10},
		{"IDLE_TIMEOUT", &idle}, {"GENERATOR", &generator}, {"AUTO_REGISTER_GROUP", &p.Group}, {"SERVICE_ACCOUNT", &p.Account},
		{certificatesKey, &certificates}, {"DNS_CAPTURE", &dns}, {"UNPRIVILEGED_POD", &unprivileged}, {"VHDS", &split}, {"REQUESTED_NETWORK_VIEW", &networks}, {onDemandKey, &onDemand}, {demandKey, &demand}, {bootstrapKey, &bootstrap},
		{"INBOUND_LISTENER_EXACT_BALANCE", &balanceIn}, {"OUTBOUND_LISTENER_EXACT_BALANCE", &balanceOut},
	} {
		s, err := text(m, f.name)
		if err != nil {
			return err
		}
		*f.into = s
	}
	if namespace != "" && namespace != p.Namespace {
		return fmt.Errorf("NAMESPACE: the proxy says that its namespace is %q, and its node id has %q; set the same in both: %w", namespace, p.Namespace, ErrNamespace)
	}
	if generator != "" {
		return fmt.Errorf("GENERATOR: %q is not supported yet: only resources for Envoy are generated; remove it", generator)
	}
	if d, err := time.ParseDuration(idle); err == nil && d > 0 { // the agent refuses other texts
		p.Idle = d
	}
	p.NoCertificate, p.OtherAuthority = certificates == noCertificates, certificates == otherAuthority
	p.HTTP10, p.DNS, p.Unprivileged, p.SplitRoutes = isTrue(http10), isTrue(dns), isTrue(unprivileged), split == "" || isTrue(split)
	p.Networks, p.OwnPorts, p.Balance = names(networks), ownPorts(m), Balance{Inbound: isTrue(balanceIn), Outbound: isTrue(balanceOut)}
	if role := Role(bootstrap); p.Role == Agent && (role == Sidecar || role == Router) {
		p.BootstrapOf = role
	}
	var err error
	if p.Mode, err = parseMode(mode); err != nil {
		return err
	}
	p.HostsOnDemand = p.Role == Sidecar && p.SplitRoutes && isTrue(demand) && p.Envoy >= demandFirst && p.Envoy <= demandLast
	if p.Role == Router {
		if p.OnDemand, err = parseOnDemand(onDemand, p.Envoy); err != nil {
			return err
		}
		if p.Topology, err = topology(m); err != nil {
			return err
		}
		if p.Connections, err = connection.Reported(m); err != nil {
			return err
		}
	}
	if err := p.addAddresses(addresses); err != nil {
		return err
	}
	if p.Labels, err = labels(m); err != nil {
		return err
	}
	if p.Locality == (mesh.Locality{}) {
		p.Locality = mesh.LabelledLocality(p.Labels)
	}
	return nil
}

// names returns the names of a list with commas, sorted.
func names(text string) intern.List[string] {
	var list []string
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return intern.Of(slices.Compact(list)...)
}

// isTrue reports whether a text of the metadata means true.
func isTrue(text string) bool { return text == "1" || strings.EqualFold(text, "true") }

func parseMode(s string) (Mode, error) {
	switch strings.ToUpper(s) {
	case "", "REDIRECT":
		return Redirect, nil
	case "TPROXY":
		return Transparent, nil
	case "NONE":
		return None, nil
	}
	return 0, fmt.Errorf("INTERCEPTION_MODE: %q is none of REDIRECT, TPROXY, NONE", s)
}

func (p *Proxy) addAddresses(list string) error {
	if list == "" {
		return nil
	}
	addresses := strings.Split(list, ",")
	if len(addresses) > maxAddresses {
		return fmt.Errorf("INSTANCE_IPS: %d addresses are more than %d", len(addresses), maxAddresses)
	}
	for _, a := range addresses {
		a = strings.TrimSpace(a)
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("INSTANCE_IPS: %q: %w", a, err)
		}
		if !slices.Contains(p.Addresses, a) {
			p.Addresses = append(p.Addresses, a)
		}
	}
	return nil
}

func text(m *structpb.Struct, field string) (string, error) {
	switch v := m.GetFields()[field].GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return "", nil
	case *structpb.Value_StringValue:
		if len(v.StringValue) > maxText {
			return "", fmt.Errorf("%s has %d bytes, and the most is %d", field, len(v.StringValue), maxText)
		}
		return v.StringValue, nil
	}
	return "", fmt.Errorf("%s is not a string", field)
}

func labels(m *structpb.Struct) (mesh.Labels, error) {
	v := m.GetFields()["LABELS"]
	switch v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return mesh.Labels{}, nil
	case *structpb.Value_StructValue:
	default:
		return mesh.Labels{}, fmt.Errorf("LABELS is not an object")
	}
	fields := v.GetStructValue().GetFields()
	if len(fields) > maxLabels {
		return mesh.Labels{}, fmt.Errorf("LABELS: %d labels are more than %d", len(fields), maxLabels)
	}
	out := make(map[string]string, len(fields))
	for k, v := range fields {
		s, ok := v.GetKind().(*structpb.Value_StringValue)
		switch {
		case !ok:
			return mesh.Labels{}, fmt.Errorf("LABELS: the value of %.100q is not a string", k)
		case len(k) > maxLabelName:
			return mesh.Labels{}, fmt.Errorf("LABELS: the name %.100q... has %d bytes, and the most is %d", k, len(k), maxLabelName)
		case len(s.StringValue) > maxLabelValue:
			return mesh.Labels{}, fmt.Errorf("LABELS: the value of %q has %d bytes, and the most is %d", k, len(s.StringValue), maxLabelValue)
		}
		out[k] = s.StringValue
	}
	return mesh.LabelsOf(out), nil
}
