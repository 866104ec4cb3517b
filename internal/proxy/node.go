package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Limits for nodes. They are far above what agents send.
const (
	maxNodeID    = 1 << 10
	maxLabels    = 100
	maxAddresses = 16
)

// A proxy that cannot have a certificate of the mesh says so in its metadata. Nothing of Istio's says it, and its proxies always have
// one.
const (
	certificatesKey = "WORKLOAD_CERTIFICATES"
	noCertificates  = "none"
)

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
	p.Extensions = slices.Compact(slices.Sorted(slices.Values(n.Extensions)))
	if err := p.readMetadata(n.Metadata); err != nil {
		return nil, fmt.Errorf("node %q: metadata %w", n.ID, err)
	}
	return p, nil
}

func (p *Proxy) readMetadata(m *structpb.Struct) error {
	var namespace, mode, addresses, http10, idle, generator, certificates, dns string
	for _, f := range []struct {
		name string
		into *string
	}{
		{"NAMESPACE", &namespace}, {"CLUSTER_ID", &p.ClusterID}, {"NETWORK", &p.Network}, {"NODE_NAME", &p.Node}, {"ISTIO_VERSION", &p.Version},
		{"INTERCEPTION_MODE", &mode}, {"INSTANCE_IPS", &addresses}, {"HTTP10", &http10},
		{"IDLE_TIMEOUT", &idle}, {"GENERATOR", &generator}, {"AUTO_REGISTER_GROUP", &p.Group}, {"SERVICE_ACCOUNT", &p.Account},
		{certificatesKey, &certificates}, {"DNS_CAPTURE", &dns},
	} {
		s, err := text(m, f.name)
		if err != nil {
			return err
		}
		*f.into = s
	}
	if namespace != "" {
		p.Namespace = namespace
	}
	if generator != "" {
		return fmt.Errorf("GENERATOR: %q is not supported yet: only resources for Envoy are generated; remove it", generator)
	}
	if d, err := time.ParseDuration(idle); err == nil && d > 0 { // the agent refuses other texts
		p.Idle = d
	}
	p.NoCertificate = certificates == noCertificates
	p.HTTP10, p.DNS = isTrue(http10), isTrue(dns)
	var err error
	if p.Mode, err = parseMode(mode); err != nil {
		return err
	}
	if err := p.addAddresses(addresses); err != nil {
		return err
	}
	if p.Labels, err = labels(m); err != nil {
		return err
	}
	if p.Locality == (mesh.Locality{}) {
		value, _ := mesh.LabelValue(p.Labels, mesh.LocalityLabel)
		p.Locality = mesh.LabelLocality(value)
	}
	return nil
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
		if !ok {
			return mesh.Labels{}, fmt.Errorf("LABELS: the value of %q is not a string", k)
		}
		out[k] = s.StringValue
	}
	return mesh.LabelsOf(out), nil
}
