package service_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/nds"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// ownerCase is a Service vault of namespace bank, and objects that claim its host, names or addresses.
type ownerCase struct {
	name string
	// vault changes the Service, which has an address, the port 80 for HTTP and the port 90 for TCP. late says that it comes after
	// all other objects, and again that it is deleted and comes back.
	vault       func(*kube.Service)
	late, again bool
	cluster     string // of the Service, if not the cluster of the control plane
	yaml        string
	lost        bool     // the Service is not seen, or shares the host
	clients     []string // namespaces; shop if there are none
}

const (
	vaultEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: squatter, namespace: evil, creationTimestamp: "2025-01-01T00:00:00Z"}
spec:
  hosts: [HOSTS]
  addresses: [ADDRESSES]
  exportTo: [EXPORT]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: 6.6.6.6, serviceAccount: thief}]
`
	vaultHost = "vault.bank.svc.cluster.local"
)

// squatter is a ServiceEntry of namespace evil that is older than the Service.
func squatter(hosts, addresses, exportTo string) string {
	return strings.NewReplacer("HOSTS", hosts, "ADDRESSES", addresses, "EXPORT", exportTo).Replace(vaultEntry)
}

// allTCP makes both ports of a ServiceEntry ports for TCP.
func allTCP(yaml string) string {
	return strings.Replace(yaml, "name: http, protocol: HTTP", "name: first, protocol: TCP", 1)
}

// allHTTP makes both ports of a ServiceEntry ports for HTTP: one with several hosts may have no port for TCP.
func allHTTP(yaml string) string {
	return strings.Replace(yaml, "name: tcp, protocol: TCP", "name: second, protocol: HTTP", 1)
}

func ownerCases() []ownerCase {
	private := func(s *kube.Service) { s.ExportTo = []string{"shop"} }
	sidecar := func(hosts string) string {
		return "---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: d, namespace: shop}\nspec: {egress: [{hosts: [" + hosts + "]}]}\n"
	}
	own := strings.ReplaceAll(squatter(vaultHost, "", `"*"`), "namespace: evil", "namespace: bank")
	external := func(s *kube.Service) {
		*s = kube.Service{Type: kube.ExternalName, ExternalName: "vault.example.com", Created: s.Created}
	}
	target := "---\n" + strings.NewReplacer("evil", "depot", "squatter", "target", "thief", "vault", "6.6.6.6", "10.7.7.7").Replace(squatter("vault.example.com", "", `"*"`))
	return []ownerCase{
		{name: "the host, declared earlier", yaml: squatter(vaultHost, "10.200.0.1", `"*"`), clients: []string{"shop", "bank", "evil"}},
		{name: "the host, before there is a Service", late: true, yaml: squatter(vaultHost, "10.200.0.1", `"*"`)},
		{name: "the host, while the Service is made again", again: true, yaml: squatter(vaultHost, "10.200.0.1", `"*"`)},
		{name: "the host, for one namespace", yaml: squatter(vaultHost, "10.200.0.1", "shop")},
		{name: "the host of a Service that one namespace sees", vault: private, yaml: squatter(vaultHost, "10.200.0.1", `"*"`), clients: []string{"shop", "other"}},
		{name: "the host of a Service of another cluster", cluster: "remote", yaml: squatter(vaultHost, "10.200.0.1", `"*"`)},
		{name: "the host, where a Sidecar imports both", yaml: squatter(vaultHost, "10.200.0.1", `"*"`) + sidecar(`"*/*"`)},
		{name: "the host, where a Sidecar imports the squatter alone", lost: true, yaml: squatter(vaultHost, "10.200.0.1", `"*"`) + sidecar(`"evil/*"`)},
		{name: "the host, by the namespace of the Service", lost: true, yaml: own},
		{name: "a pattern that covers the host", yaml: strings.NewReplacer("STATIC", "NONE", "  endpoints: [{address: 6.6.6.6, serviceAccount: thief}]\n", "").Replace(squatter(`"*.bank.svc.cluster.local"`, "10.200.0.1", `"*"`))},
		{name: "the address", yaml: allTCP(squatter("evil.com", vaultAddress, `"*"`))},
		{name: "the address, for HTTP", yaml: squatter("evil.com", vaultAddress, `"*"`)},
		{name: "the address, for one namespace", yaml: allTCP(squatter("evil.com", vaultAddress, "shop"))},
		{name: "the address of a Service that one namespace sees", vault: private, yaml: allTCP(squatter("evil.com", vaultAddress, `"*"`))},
		{name: "the address of a Service of another cluster", cluster: "remote", yaml: allTCP(squatter("evil.com", vaultAddress, `"*"`))},
		{name: "the address, where a Sidecar imports both", yaml: allTCP(squatter("evil.com", vaultAddress, `"*"`)) + sidecar(`"*/*"`)},
		{name: "a block with the address", yaml: allTCP(squatter("evil.com", "10.200.0.0/16", `"*"`))},
		{name: "a block with the address, for one namespace", yaml: allTCP(squatter("evil.com", "10.200.0.0/16", "shop"))},
		{name: "short names", yaml: allHTTP(squatter("vault.bank, vault.bank.svc, vault", "10.200.0.1", `"*"`)), clients: []string{"shop", "bank"}},
		{name: "the bare name, in the namespace of the squatter alone", lost: true, yaml: squatter("vault", "10.200.0.1", `"."`), clients: []string{"bank", "evil"}},
		{name: "the bare name, for a namespace that does not mean the Service by it", yaml: squatter("vault", "10.200.0.1", "shop"), clients: []string{"shop", "bank"}, lost: true},
		{name: "short names of a Service that one namespace sees", vault: private, yaml: squatter("vault.bank", "10.200.0.1", `"*"`), clients: []string{"shop", "other"}},
		{name: "the name of an ExternalName", vault: external, yaml: allHTTP(squatter(vaultHost+", vault.bank", "10.200.0.1", `"*"`)) + target, clients: []string{"shop", "evil"}},
		{name: "the name of an ExternalName that one namespace sees", vault: func(s *kube.Service) { external(s); private(s) }, yaml: squatter(vaultHost, "10.200.0.1", `"*"`) + target, clients: []string{"shop", "other"}},
	}
}

const vaultAddress = "10.200.0.2"

// TestOwners checks that only the namespace of a Service declares its host, names and addresses for clients that see it. The golden
// file says for each case what reaches which endpoints, and the problems.
func TestOwners(t *testing.T) {
	archive := &txtar.Archive{Comment: []byte("What clients of the Service vault in namespace bank reach, while an older ServiceEntry of namespace evil wants them.\n\n")}
	for _, c := range ownerCases() {
		w := meshtest.NewWith(t, meshtest.Options{ClusterID: "own"})
		if !c.late {
			w.Observe(c.objects(false))
		}
		w.Apply(c.yaml)
		if c.again {
			w.Observe(c.objects(true))
		}
		var b strings.Builder
		clients := c.clients
		if len(clients) == 0 {
			clients = []string{"shop"}
		}
		for i, namespace := range clients {
			clients[i] = fmt.Sprintf("sidecar~10.9.9.%d~web-1.%s~%s.svc.cluster.local", i+1, namespace, namespace)
			w.Connect(meshtest.Node(t, clients[i], `{"CLUSTER_ID": "own", "DNS_CAPTURE": "true"}`))
		}
		if c.late || c.again {
			w.Observe(c.objects(false))
		}
		w.Check()
		for _, id := range clients {
			who, got := strings.Split(id, "~")[2], reached(t, w.State(w.Follow(id)))
			fmt.Fprintf(&b, "from %s\n%s", who, got)
			if !c.lost && who != "web-1.evil" && who != "web-1.other" && regexp.MustCompile(`vault\.bank.* (6\.6\.6\.6|10\.200\.0\.1|\S*thief)$`).MatchString(got) {
				t.Errorf("%s: from %s\n%s", c.name, who, got)
			}
		}
		for _, p := range w.Problems() {
			fmt.Fprintln(&b, "problem:", p)
		}
		archive.Files = append(archive.Files, txtar.File{Name: c.name, Data: []byte(b.String())})
	}
	golden(t, "testdata/owners.txt", txtar.Format(archive))
}

// objects are the objects of the Service; gone has none of them.
func (c ownerCase) objects(gone bool) map[api.Key]kube.Value {
	cluster := c.cluster
	if cluster == "" {
		cluster = "own"
	}
	key := func(kind, name string) api.Key {
		return api.Key{Kind: kind, Namespace: "bank", Name: name, Cluster: cluster}
	}
	labels := mesh.LabelsOf(map[string]string{"app": "vault"})
	s := &kube.Service{
		Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), Addresses: []string{vaultAddress}, Selector: labels,
		Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP, Target: 80}, {Name: "tcp", Number: 90, Protocol: mesh.TCP, Target: 90}},
	}
	if c.vault != nil {
		c.vault(s)
	}
	values := map[api.Key]kube.Value{
		key(kube.KindService, "vault"): s,
		key(kube.KindPod, "vault-1"):   &kube.Pod{Address: "10.1.1.1", ServiceAccount: "vault", Labels: labels},
		key(kube.KindEndpointSlice, "vault-x"): &kube.Slice{
			Service: "vault", Controlled: true, Ports: intern.Of(kube.SlicePort{Name: "http", Number: 80}, kube.SlicePort{Name: "tcp", Number: 90}),
			Endpoints: []kube.SliceEndpoint{{Address: "10.1.1.1", Pod: "vault-1"}},
		},
	}
	if gone {
		for k := range values {
			values[k] = nil
		}
	}
	return values
}

// reached describes where a proxy sends its traffic: the endpoints and the expected identities of each cluster, the
// clusters of each listener's connections, and the domains of each virtual host.
func reached(t *testing.T, s *resource.State) string {
	var lines []string
	for _, typ := range []resource.Type{resource.Cluster, resource.Endpoint, resource.Listener} {
		for r := range s.Layers(typ).All() {
			m, err := r.Proto()
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *clusterv3.Cluster:
				for _, match := range m.TransportSocketMatches {
					var c tlsv3.UpstreamTlsContext
					if match.TransportSocket.GetTypedConfig().UnmarshalTo(&c) != nil {
						continue // plain text
					}
					for _, name := range c.CommonTlsContext.GetCombinedValidationContext().GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
						lines = append(lines, fmt.Sprintf("%s expects %s", m.Name, name.Matcher.GetExact()))
					}
				}
			case *endpointv3.ClusterLoadAssignment:
				for _, l := range m.Endpoints {
					for _, e := range l.LbEndpoints {
						lines = append(lines, fmt.Sprintf("%s has the endpoint %s", m.ClusterName, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()))
					}
				}
			case *listenerv3.Listener:
				if strings.HasPrefix(m.Name, "virtual") {
					continue
				}
				for _, c := range m.FilterChains {
					lines = append(lines, m.Name+chain(t, c))
				}
			}
		}
	}
	for line := range strings.Lines(meshtest.Domains(t, s) + names(t, s)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	return "  " + strings.Join(slices.Compact(lines), "\n  ") + "\n"
}

// chain describes the match of a filter chain, and its destination.
func chain(t *testing.T, c *listenerv3.FilterChain) (line string) {
	for _, p := range c.GetFilterChainMatch().GetPrefixRanges() {
		line += fmt.Sprintf(" %s/%d", p.AddressPrefix, p.PrefixLen.GetValue())
	}
	if len(c.GetFilterChainMatch().GetApplicationProtocols()) > 0 {
		line += " HTTP"
	}
	for _, f := range c.Filters {
		m, err := f.GetTypedConfig().UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *tcpv3.TcpProxy:
			line += " leads to " + m.GetCluster()
		case *hcmv3.HttpConnectionManager:
			line += " asks the routes " + m.GetRds().GetRouteConfigName()
		}
	}
	return line
}

// names are the names that the agent answers.
func names(t *testing.T, s *resource.State) string {
	var b strings.Builder
	for r := range s.Layers(resource.NameTable).All() {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(bytes.Join(r.AppendSotW(nil), nil), &m); err != nil {
			t.Fatal(err)
		}
		err := nds.Decode(m.Resources[0].Value, func(e nds.Entry) {
			fmt.Fprintf(&b, "name %s: %s\n", e.Host, strings.Join(e.Addresses, " "))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
