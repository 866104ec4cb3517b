// Package vm makes the files with which a virtual machine joins a mesh. They have the names and the content of the files that
// `istioctl x workload entry configure` makes, so that agents of Istio can be configured with them, too.
//
//   - cluster.env: variables of the agent and of the capture of traffic
//   - mesh.yaml: the part of the mesh configuration that is about proxies
//   - root-cert.pem: the roots that vouch for the control plane
//   - istio-token: the token with which the agent authenticates for the first time
//   - hosts: the address of the control plane, for /etc/hosts
//
// The package is pure: facts go in, files come out. It starts no goroutines.
package vm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
)

// Facts are the input for the files.
type Facts struct {
	// Group is the name of the WorkloadGroup, and Spec its content.
	Group, Namespace string
	Spec             *networking.WorkloadGroup
	// Mesh is the configuration of the mesh.
	Mesh *meshconfig.MeshConfig
	// ControlNamespace is the namespace of the control plane, and Revision its revision; empty for the default one.
	ControlNamespace, Revision string
	// Discovery is the address of the control plane; empty for the name of its service. Ingress are addresses at which machines reach that
	// service, such as the addresses of a gateway.
	Discovery string
	Ingress   []string
	ClusterID string
	// Register makes the proxy ask for a WorkloadEntry, and DNS makes it answer DNS queries.
	Register, DNS bool
	// InternalIP is the address of the machine, as the mesh reaches it; ExternalIP another address that leads to the machine. Both may be empty.
	InternalIP, ExternalIP string
	Token, Roots           []byte
}

// File is one of the files.
type File struct {
	Name    string
	Mode    fs.FileMode
	Content []byte
}

const (
	public  fs.FileMode = 0o644
	private fs.FileMode = 0o600
)

// Labels that say which service a workload belongs to.
const (
	canonicalName     = "service.istio.io/canonical-name"
	canonicalRevision = "service.istio.io/canonical-revision"
)

// tlsPort is the port at which the control plane accepts TLS.
const tlsPort = "15012"

// Account returns the service account of the machine.
func Account(s *networking.WorkloadGroup) string {
	return cmp.Or(s.GetTemplate().GetServiceAccount(), "default")
}

// Files returns the files, and remarks about settings without effect and steps still to be done.
func Files(f Facts) ([]File, []string, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	if err := f.annotate(); err != nil {
		return nil, nil, err
	}
	hosts, remarks := f.hosts()
	settings, err := f.mesh()
	if err != nil {
		return nil, nil, err
	}
	return []File{
		{"cluster.env", public, f.environment()},
		{"hosts", public, hosts},
		{"istio-token", private, append(slices.Clone(f.Token), '\n')},
		{"mesh.yaml", public, settings},
		{"root-cert.pem", public, f.Roots},
	}, remarks, nil
}

// proxyAnnotation is the annotation with settings of the agent.
const proxyAnnotation = "proxy.istio.io/config"

// annotate merges the settings of the group over the settings of the mesh.
func (f *Facts) annotate() error {
	text := f.Spec.GetMetadata().GetAnnotations()[proxyAnnotation]
	var layer meshconfig.ProxyConfig
	b, err := yaml.YAMLToJSON([]byte(text))
	if err == nil && text != "" {
		err = protojson.Unmarshal(b, &layer)
	}
	if err != nil {
		return fmt.Errorf("the annotation %s of the WorkloadGroup: %w", proxyAnnotation, err)
	}
	merged := &meshconfig.MeshConfig{}
	if f.Mesh != nil {
		merged = proto.CloneOf(f.Mesh)
	}
	if merged.DefaultConfig == nil {
		merged.DefaultConfig = &meshconfig.ProxyConfig{}
	}
	proto.Merge(merged.DefaultConfig, &layer)
	f.Mesh = merged
	return nil
}

func (f Facts) check() error {
	var errs []error
	for _, one := range []struct{ flag, text string }{{"--internalIP", f.InternalIP}, {"--externalIP", f.ExternalIP}} {
		if _, err := netip.ParseAddr(one.text); one.text != "" && err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not an IP address", one.flag, one.text))
		}
	}
	for _, ip := range f.Ingress {
		if _, err := netip.ParseAddr(ip); err != nil {
			errs = append(errs, fmt.Errorf("--ingressIP: %q is not an IP address", ip))
		}
	}
	if _, _, err := net.SplitHostPort(f.discovery()); err != nil {
		errs = append(errs, fmt.Errorf("--discoveryAddress: %q is not host:port", f.Discovery))
	}
	if len(f.Roots) == 0 {
		errs = append(errs, errors.New("there are no roots that vouch for the control plane"))
	}
	return errors.Join(errs...)
}

// revised reports whether the control plane has a revision other than the default.
func (f Facts) revised() bool { return f.Revision != "" && f.Revision != "default" }

// service is the DNS name of the control plane.
func (f Facts) service() string {
	name := "istiod"
	if f.revised() {
		name += "-" + f.Revision
	}
	return name + "." + f.ControlNamespace + ".svc"
}

// discovery is the address of the control plane. The address in the mesh configuration counts if it is not the built-in default.
func (f Facts) discovery() string {
	configured := f.Mesh.GetDefaultConfig().GetDiscoveryAddress()
	if configured == api.DefaultMesh().GetDefaultConfig().GetDiscoveryAddress() {
		configured = ""
	}
	return cmp.Or(f.Discovery, configured, net.JoinHostPort(f.service(), tlsPort))
}

// hosts returns the lines for /etc/hosts.
func (f Facts) hosts() (text []byte, remarks []string) {
	host, _, err := net.SplitHostPort(f.discovery())
	if err != nil {
		return nil, nil // check has reported it
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil, nil
	}
	for _, ip := range f.Ingress {
		text = fmt.Appendf(text, "%s %s\n", ip, host)
	}
	if len(f.Ingress) == 0 {
		remarks = append(remarks, fmt.Sprintf("the file hosts is empty, because the address at which machines reach %s is not known: "+
			"add a line with it, set --ingressIP, or make sure that the machine's DNS server knows that name", host))
	}
	return text, remarks
}

// labels are the labels of the workload.
func (f Facts) labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, f.Spec.GetTemplate().GetLabels())
	maps.Copy(labels, f.Spec.GetMetadata().GetLabels())
	labels[canonicalName] = cmp.Or(labels[canonicalName], labels["app.kubernetes.io/name"], labels["app"], f.Group)
	labels[canonicalRevision] = cmp.Or(labels[canonicalRevision], labels["app.kubernetes.io/version"], labels["version"], "latest")
	return labels
}

// metadata are the variables that are also in mesh.yaml.
func (f Facts) metadata() map[string]string {
	labels := f.labels()
	text, _ := json.Marshal(labels) // a map of texts; its keys are sorted
	m := map[string]string{}
	maps.Copy(m, f.Mesh.GetDefaultConfig().GetProxyMetadata())
	maps.Copy(m, map[string]string{
		"CANONICAL_SERVICE": labels[canonicalName], "CANONICAL_REVISION": labels[canonicalRevision],
		"POD_NAMESPACE": f.Namespace, "SERVICE_ACCOUNT": Account(f.Spec), "TRUST_DOMAIN": f.Mesh.GetTrustDomain(),
		"ISTIO_META_CLUSTER_ID": f.ClusterID, "ISTIO_META_WORKLOAD_NAME": f.Group, "ISTIO_METAJSON_LABELS": string(text),
		"ISTIO_META_MESH_ID": f.Mesh.GetDefaultConfig().GetMeshId(), "ISTIO_META_NETWORK": f.Spec.GetTemplate().GetNetwork(),
	})
	if ports := f.ports(); ports != "" {
		m["ISTIO_META_POD_PORTS"] = ports
	}
	if f.revised() {
		m["CA_ADDR"] = f.discovery() // agents of Istio would look for the authority at the default revision
	}
	if f.Register {
		m["ISTIO_META_AUTO_REGISTER_GROUP"] = f.Group
	}
	if f.DNS {
		m["ISTIO_META_DNS_CAPTURE"] = "true"
	}
	return m
}

// ports are the ports of the template, as JSON; empty if there are none.
func (f Facts) ports() string {
	type port struct {
		Name     string `json:"name,omitempty"`
		Number   uint32 `json:"containerPort,omitempty"`
		Protocol string `json:"protocol"`
	}
	all := f.Spec.GetTemplate().GetPorts()
	list := []port{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, port{Name: name, Number: all[name]})
	}
	if len(list) == 0 {
		return ""
	}
	text, _ := json.Marshal(list) // texts and numbers
	return string(text)
}

// inbound are the ports at which inbound traffic is captured: the ports of the template, or all.
func (f Facts) inbound() string {
	var list []string
	for _, port := range slices.Sorted(maps.Values(f.Spec.GetTemplate().GetPorts())) {
		list = append(list, strconv.Itoa(int(port)))
	}
	return cmp.Or(strings.Join(slices.Compact(list), ","), "*")
}

// environment returns cluster.env.
func (f Facts) environment() []byte {
	m := f.metadata()
	exclude := []string{"22", "15090", "15021", "15020"}
	if port := f.Mesh.GetDefaultConfig().GetStatusPort(); port != 0 && port != 15020 {
		exclude = append(exclude, strconv.Itoa(int(port)))
	}
	maps.Copy(m, map[string]string{
		"ISTIO_INBOUND_PORTS": f.inbound(), "ISTIO_LOCAL_EXCLUDE_PORTS": strings.Join(exclude, ","), "ISTIO_NAMESPACE": f.Namespace,
		"ISTIO_SERVICE": f.Group + "." + f.Namespace, "ISTIO_SERVICE_CIDR": "*",
	})
	if ip := cmp.Or(f.InternalIP, f.ExternalIP); ip != "" {
		m["ISTIO_SVC_IP"] = ip
	}
	if f.ExternalIP != "" {
		m["REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION"] = "true" // the machine has no such address itself
	}
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = fmt.Appendf(out, "%s=%s\n", name, quote(m[name]))
	}
	return out
}

// quote quotes a value so that a shell and systemd read the same.
func quote(value string) string {
	if !strings.Contains(value, "'") {
		return "'" + value + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value) + `"`
}

// mesh returns mesh.yaml: the differences from the built-in ProxyConfig, and the settings that the machine needs beside them.
func (f Facts) mesh() ([]byte, error) {
	p := proto.CloneOf(f.Mesh.GetDefaultConfig())
	if p == nil {
		p = &meshconfig.ProxyConfig{}
	}
	is, builtIn := p.ProtoReflect(), api.DefaultMesh().GetDefaultConfig().ProtoReflect()
	is.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if builtIn.Has(d) && v.Equal(builtIn.Get(d)) {
			is.Clear(d)
		}
		return true
	})
	p.DiscoveryAddress, p.ProxyMetadata = f.discovery(), f.metadata()
	if probe := f.Spec.GetProbe(); probe != nil {
		p.ReadinessProbe = probe
	}
	text, err := protojson.Marshal(p)
	if err == nil {
		text, err = yaml.JSONToYAML(fmt.Appendf(nil, `{"defaultConfig": %s}`, text))
	}
	if err != nil {
		return nil, fmt.Errorf("writing mesh.yaml: %w", err)
	}
	return text, nil
}
