package state

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// Kube are the objects of Kubernetes clusters. Each cluster is read by one source, so there is one version of each object.
type Kube struct {
	// Clusters are the clusters that ever had a Service. A cluster is never removed, which would need a list of its Services.
	Clusters store.Table[string, bool]
	// Services are the Services. Their claims, ports and selectors are also rows of Claims, Services, Endpoints and Identities.
	Services store.Table[api.Key, *kube.Service]
	// ClusterIPs lists, under the empty key, the Services of type ClusterIP. LastAccounts are the service accounts of the endpoints that such a
	// Service has, or had last if it has none; see Tables.RememberAccounts.
	ClusterIPs   store.Index[struct{}, api.Key]
	LastAccounts store.Table[api.Key, intern.List[string]]
	// Members lists, under the empty key, the Services with a claim.Member.
	Members store.Index[struct{}, api.Key]
	// Written has the selector of a Service of a file, by the key of the Service.
	Written store.Index[api.Key, PodLabels]
	// Slices are the endpoint slices; SlicesOf lists the slices of a Service, by the key of the Service.
	Slices   store.Table[api.Key, *kube.Slice]
	SlicesOf store.Index[api.Key, api.Key]
	// HTTPAddresses lists by port the addresses at which a Service has a port for HTTP.
	HTTPAddresses store.Index[uint32, kube.ServiceAddress]
	// SlicesWith lists the slices of a Service with an endpoint at an address, in a dual-stack mesh. It is empty in others.
	SlicesWith store.Index[ServiceAddress, api.Key]
	// SlicesAt lists the slices with an endpoint at an address that may belong to a pod which its service does not select.
	SlicesAt store.Index[AddressIn, api.Key]
	// Unselecting lists the Services of a namespace without a selector, whose endpoints are made by hand.
	Unselecting store.Index[string, api.Key]
	// SlicesNaming lists the hand-made slices that refer to a pod of their namespace.
	SlicesNaming store.Index[api.Key, api.Key]
	// Pods are the pods; PodsAt lists them by address, except pods on the network of their node.
	Pods   store.Table[api.Key, *kube.Pod]
	PodsAt store.Index[ClusterAddress, api.Key]
	// PodsOn lists the pods on a node of a cluster.
	PodsOn store.Index[ClusterNode, api.Key]
	// UnreadyPods has a row for each pod that is not ready. Rows of Pods do not contain readiness, so that only queries that read it
	// depend on it.
	UnreadyPods store.Table[api.Key, bool]
	// PodsWith lists the pods of a namespace with equal labels, and LabelSets lists the sets of labels of its pods, and of the
	// pods of all namespaces, by each label in them. So the memory for a pod does not grow with the number of its labels.
	PodsWith  store.Index[PodLabels, api.Key]
	LabelSets store.Index[selected.LabelIn, PodLabels]

	// Uncaptured has a row for each node with the taint kube.UncapturedTaint, and UncapturedIn lists them by cluster. Agents has the node of each pod
	// that captures traffic there, and AgentsOn lists these pods by node.
	Uncaptured   store.Table[api.Key, bool]
	UncapturedIn store.Index[string, api.Key]
	Agents       store.Table[api.Key, string]
	AgentsOn     store.Index[ClusterNode, api.Key]

	Nodes      store.Table[api.Key, *kube.Node]
	Namespaces store.Table[api.Key, *kube.Namespace]

	// Secrets are the Secrets that proxies ask for by name and that their accounts may read, and those in a folder, which have no
	// cluster. There is no row before a Secret was looked for. Rows of this table are in no journal and on no page.
	Secrets store.Table[api.Key, *kube.Secret]
	// SecretReaders has, for each account whose proxies ask for Secrets, whether it may read the Secrets of its namespace.
	SecretReaders store.Table[connected.Account, Permission]
}

// ClusterAddress is an address of pods in a cluster.
type ClusterAddress struct{ Cluster, Address string }

// ServiceOf returns the key of the Service of a slice.
func ServiceOf(slice api.Key, s *kube.Slice) api.Key {
	return api.Key{Kind: kube.KindService, Namespace: slice.Namespace, Name: s.Service, Cluster: slice.Cluster}
}

// ServiceAddress is an address of endpoints of a Service.
type ServiceAddress struct {
	Service api.Key
	Address string
}

// ClusterNode is a node of a cluster, by its name.
type ClusterNode struct{ Cluster, Node string }

// PodLabels is a set of labels that pods of a namespace have.
type PodLabels struct {
	Namespace string
	Labels    mesh.Labels
}

// Compare orders by namespace, then by labels.
func (p PodLabels) Compare(o PodLabels) int {
	if c := strings.Compare(p.Namespace, o.Namespace); c != 0 || p.Labels == o.Labels {
		return c
	}
	return mesh.CompareLabels(p.Labels, o.Labels)
}

// AppendTo appends an unambiguous form.
func (p PodLabels) AppendTo(b []byte) []byte {
	b = append(append(b, p.Namespace...), 0)
	for l := range p.Labels.All() {
		b = l.AppendTo(b)
	}
	return b
}

func (t *Tables) defineKube(db *store.DB) {
	k := &t.Kube
	k.Clusters = store.NewTable[string, bool](db, "clusters", same[bool])
	k.Members = store.NewIndex(t.Claims, "members", func(key api.Key, c *claim.Claims, add func(struct{}, api.Key)) {
		if c.Kind == claim.Member {
			add(struct{}{}, key)
		}
	})
	k.Services = store.NewTable[api.Key, *kube.Service](db, "kubeServices", sameValue[*kube.Service])
	k.ClusterIPs = store.NewIndex(k.Services, "clusterIPServices", func(key api.Key, s *kube.Service, add func(struct{}, api.Key)) {
		if s.Type == kube.ClusterIP {
			add(struct{}{}, key)
		}
	})
	k.LastAccounts = store.NewTable[api.Key](db, "lastAccounts", same[intern.List[string]])
	k.LastAccounts.OmitFromJournal() // these rows are no configuration, and would push it out of the journal
	t.defineSelections()
	k.Slices = store.NewTable[api.Key, *kube.Slice](db, "slices", sameValue[*kube.Slice])
	k.Slices.SetRole("endpoints")
	k.SlicesOf = store.NewIndex(k.Slices, "slicesOf", func(key api.Key, s *kube.Slice, add func(api.Key, api.Key)) {
		add(ServiceOf(key, s), key)
	})
	dualStack := t.options.DualStack
	k.SlicesWith = store.NewIndex(k.Slices, "slicesOfAddress", func(key api.Key, s *kube.Slice, add func(ServiceAddress, api.Key)) {
		if !dualStack {
			return
		}
		for _, e := range s.Endpoints {
			add(ServiceAddress{ServiceOf(key, s), e.Address}, key)
		}
	})
	t.defineHTTPAddresses()
	k.SlicesAt = store.NewIndex(k.Slices, "slicesAt", func(key api.Key, s *kube.Slice, add func(AddressIn, api.Key)) {
		for _, e := range s.Endpoints {
			if e.Pod == "" || !s.Controlled {
				add(AddressIn{key.Namespace, e.Address}, key)
			}
		}
	})
	k.SlicesNaming = store.NewIndex(k.Slices, "slicesNaming", func(key api.Key, s *kube.Slice, add func(api.Key, api.Key)) {
		for _, e := range s.Endpoints {
			if ns, pod := e.PodName(key.Namespace); !s.Controlled && pod != "" && ns == key.Namespace {
				add(api.Key{Kind: kube.KindPod, Namespace: ns, Name: pod, Cluster: key.Cluster}, key)
			}
		}
	})
	k.definePods(db)
	k.defineCapture(db)
	k.Nodes = store.NewTable[api.Key, *kube.Node](db, "nodes", sameValue[*kube.Node])
	k.Namespaces = store.NewTable[api.Key, *kube.Namespace](db, "namespaces", sameValue[*kube.Namespace])
	k.Secrets = store.NewTable[api.Key, *kube.Secret](db, "secrets", sameValue[*kube.Secret])
	k.Secrets.OmitFromJournal()
	k.SecretReaders = store.NewTable[connected.Account](db, "secretReaders", same[Permission])
	k.SecretReaders.OmitFromJournal()
}

func (k *Kube) definePods(db *store.DB) {
	k.Pods = store.NewTable[api.Key, *kube.Pod](db, "pods", sameValue[*kube.Pod])
	k.PodsAt = store.NewIndex(k.Pods, "podsAt", func(key api.Key, p *kube.Pod, add func(ClusterAddress, api.Key)) {
		if p.HostNetwork || p.Address == "" {
			return
		}
		add(ClusterAddress{key.Cluster, p.Address}, key)
		for address := range p.MoreAddresses.All() {
			add(ClusterAddress{key.Cluster, address}, key)
		}
	})
	k.PodsOn = store.NewIndex(k.Pods, "podsOn", func(key api.Key, p *kube.Pod, add func(ClusterNode, api.Key)) {
		if p.Node != "" {
			add(ClusterNode{key.Cluster, p.Node}, key)
		}
	})
	k.UnreadyPods = store.NewTable[api.Key, bool](db, "unreadyPods", same[bool])
	k.PodsWith = store.NewIndex(k.Pods, "podsWith", func(key api.Key, p *kube.Pod, add func(PodLabels, api.Key)) {
		add(PodLabels{key.Namespace, p.Labels}, key)
	})
	k.LabelSets = store.NewIndex(k.Pods, "labelSets", func(key api.Key, p *kube.Pod, add func(selected.LabelIn, PodLabels)) {
		for l := range p.Labels.All() {
			add(selected.LabelIn{Namespace: key.Namespace, Label: l}, PodLabels{key.Namespace, p.Labels})
			add(selected.LabelIn{Namespace: "", Label: l}, PodLabels{key.Namespace, p.Labels})
		}
	})
}

func (k *Kube) defineCapture(db *store.DB) {
	k.Uncaptured = store.NewTable[api.Key](db, "uncapturedNodes", same[bool])
	k.UncapturedIn = store.NewIndex(k.Uncaptured, "uncapturedIn", func(key api.Key, _ bool, add func(string, api.Key)) { add(key.Cluster, key) })
	k.Agents = store.NewTable[api.Key](db, "captureAgents", same[string])
	k.AgentsOn = store.NewIndex(k.Agents, "captureAgentsOn", func(key api.Key, node string, add func(ClusterNode, api.Key)) {
		add(ClusterNode{key.Cluster, node}, key)
	})
}

func (t *Tables) defineSelections() {
	k := &t.Kube
	k.Written = store.NewIndex(k.Services, "written", func(key api.Key, s *kube.Service, add func(api.Key, PodLabels)) {
		if s.Written && !s.Selector.Empty() {
			add(key, PodLabels{key.Namespace, s.Selector})
		}
	})
	k.Unselecting = store.NewIndex(k.Services, "unselecting", func(key api.Key, s *kube.Service, add func(string, api.Key)) {
		if s.Selector.Empty() && s.Type != kube.ExternalName {
			add(key.Namespace, key)
		}
	})
}

func (t *Tables) defineHTTPAddresses() {
	t.Kube.HTTPAddresses = store.NewIndex(t.Services, "httpAddresses", func(key api.Key, s *mesh.Service, add func(uint32, kube.ServiceAddress)) {
		for _, text := range s.Addresses {
			ip, err := netip.ParseAddr(text)
			if err != nil || key.Cluster == "" {
				continue
			}
			for _, p := range s.Ports {
				if p.Protocol.IsHTTP() {
					add(p.Number, kube.ServiceAddress{Addr: ip.Unmap(), Cluster: key.Cluster, Namespace: key.Namespace, Name: key.Name})
				}
			}
		}
	})
}

// sameValue reports whether two values of Kubernetes are equal.
func sameValue[V kube.Value](a, b V) bool { return a.Same(b) }

func namespaceKey(cluster, name string) api.Key {
	return api.Key{Kind: kube.KindNamespace, Name: name, Cluster: cluster}
}

// applyKube writes the change of an object of Kubernetes. It reports whether the event is about one.
func (t *Tables) applyKube(tx *store.Txn, e source.Event) bool {
	switch e.Key.Kind {
	case kube.KindService:
		s, ok := e.Value.(*kube.Service)
		if !ok {
			s = &kube.Service{}
		}
		t.writeEntrance(tx, e.Key, s)
		if s.Entrance != (kube.Entrance{}) {
			plain := *s
			plain.Entrance = kube.Entrance{} // no reader of a Service depends on it
			s = &plain
		}
		write(tx, t.Kube.Services, e.Key, s, ok)
		write(tx, t.Positions, e.Key, e.Position, ok && e.Position.File != "")
		t.Kube.Clusters.Set(tx, e.Key.Cluster, true)
		t.splitService(tx, e.Key)
		t.exposeServices(tx, e.Key)
	case kube.KindEndpointSlice:
		s, ok := e.Value.(*kube.Slice)
		write(tx, t.Kube.Slices, e.Key, s, ok)
	case kube.KindPod:
		t.applyPod(tx, e)
	case kube.KindNode:
		n, ok := e.Value.(*kube.Node)
		if !ok {
			n = &kube.Node{}
		}
		t.writeNodeEntrance(tx, e.Key, n)
		write(tx, t.Kube.Uncaptured, e.Key, true, n.Uncaptured)
		if !n.Labels.Empty() || n.Uncaptured {
			plain := *n
			plain.Labels, plain.Uncaptured = mesh.Labels{}, false
			n = &plain
		}
		write(tx, t.Kube.Nodes, e.Key, n, ok)
	case kube.KindNamespace:
		t.applyNamespace(tx, e)
	case kube.KindSecret, kube.KindConfigMap:
		s, ok := e.Value.(*kube.Secret)
		write(tx, t.Kube.Secrets, e.Key, s, ok)
	case kindPermission:
		t.applyPermission(tx, e)
	default:
		return false
	}
	return true
}

// applyPod writes the change of a pod. What changes often, or concerns few readers, has rows of its own.
func (t *Tables) applyPod(tx *store.Txn, e source.Event) {
	p, ok := e.Value.(*kube.Pod)
	if !ok {
		p = &kube.Pod{}
	}
	write(tx, t.Kube.UnreadyPods, e.Key, true, p.NotReady)
	write(tx, t.Kube.Agents, e.Key, p.Node, p.Captures)
	ok = ok && !p.Unselected
	if p.NotReady || p.Captures {
		plain := *p
		plain.NotReady, plain.Captures = false, false
		p = &plain
	}
	write(tx, t.Kube.Pods, e.Key, p, ok)
}

// applyNamespace writes the change of a namespace. Only if its annotation changes, which is rare, all its Services are rewritten, and if its labels change
// who sees ServiceEntries, the claims of these.
func (t *Tables) applyNamespace(tx *store.Txn, e source.Event) {
	was, _ := t.Kube.Namespaces.Peek(e.Key)
	is, ok := e.Value.(*kube.Namespace)
	write(tx, t.Kube.Namespaces, e.Key, is, ok)
	if e.Key.Cluster == t.options.ClusterID && t.visibility(was) != t.visibility(is) {
		for _, o := range t.Objects.All() {
			if o.Kind == api.KindServiceEntry && o.Namespace == e.Key.Name {
				t.kinds[o.Kind].expose(tx, o)
			}
		}
	}
	if was.TrafficDistribution() == is.TrafficDistribution() {
		return
	}
	for service := range t.Kube.Services.All() {
		if service.Cluster == e.Key.Cluster && service.Namespace == e.Key.Name {
			t.splitService(tx, service)
			t.exposeServices(tx, service)
		}
	}
}

// visibility returns how far ServiceEntries of a namespace are seen; nil for a namespace that is not known, which has no labels.
func (t *Tables) visibility(n *kube.Namespace) settings.Visibility {
	return t.ServiceEntryVisibility(n.LabelSet())
}

// write sets a row, or deletes it if there is no value.
func write[V any](tx *store.Txn, table store.Table[api.Key, V], k api.Key, v V, present bool) {
	if present {
		table.Set(tx, k, v)
	} else {
		table.Delete(tx, k)
	}
}

// splitService writes the rows of a Service that services of all registries have, except for its claims.
func (t *Tables) splitService(tx *store.Txn, k api.Key) {
	s, ok := t.Kube.Services.Peek(k)
	if !ok || s.Type == kube.ExternalName {
		for _, table := range []rows{t.Services, t.Endpoints, t.Identities} {
			table.Delete(tx, k)
		}
		return
	}
	selector, near := mesh.LabelMap(s.Selector), t.nearness(k, s)
	out := &mesh.Service{
		Name: k.Name, Namespace: k.Namespace, Addresses: s.Addresses, SubjectAltNames: s.Identities, Resolution: mesh.Static, Near: near, ByFamily: true,
		ClusterLocal: t.ClusterLocal(t.ServiceHost(k)), SamePorts: s.SamePorts, Session: s.Session,
	}
	if s.Type == kube.Headless {
		out.Resolution, out.Headless = mesh.Passthrough, true
	}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, mesh.Port{Number: p.Number, Name: p.Name, Protocol: p.Protocol, TargetPort: p.Target, TargetName: p.TargetName})
	}
	t.Services.Set(tx, k, out)
	t.Endpoints.Set(tx, k, &Endpoints{Selector: selector})
	t.Identities.Set(tx, k, &Identities{Accounts: s.ServiceAccounts, Selector: selector})
}

// sameName returns the Services of the name and namespace of a Service in all clusters: the Service in the control plane's cluster
// first, then the others in the order of the IDs of their clusters. The first one leads: it decides the properties of the service, and the
// others are members, which add endpoints and addresses.
func (t *Tables) sameName(k api.Key) []api.Key {
	var keys []api.Key
	for cluster := range t.Kube.Clusters.All() {
		k.Cluster = cluster
		if _, ok := t.Kube.Services.Peek(k); ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b api.Key) int {
		switch own := t.options.ClusterID; {
		case a.Cluster == own:
			return -1
		case b.Cluster == own:
			return 1
		}
		return strings.Compare(a.Cluster, b.Cluster)
	})
	return keys
}

// exposeServices writes the claims of a Service and of the Services of its name in other clusters. k is the key of one of them.
func (t *Tables) exposeServices(tx *store.Txn, k api.Key) {
	if _, ok := t.Kube.Services.Peek(k); !ok {
		t.Claims.Delete(tx, k)
	}
	keys := t.sameName(k)
	var leading *claim.Claims
	for i, k := range keys {
		var c *claim.Claims
		if i == 0 {
			s, _ := t.Kube.Services.Peek(k)
			leading = t.serviceClaims(k, s)
			c = leading
		} else {
			c = t.memberClaims(k, keys[0], leading)
		}
		if len(c.Layers) == 0 {
			t.Claims.Delete(tx, k)
			continue
		}
		t.Claims.Set(tx, k, c)
	}
}

// memberClaims returns the claims of a Service beside one that leads and makes the claims leading.
func (t *Tables) memberClaims(k, leader api.Key, leading *claim.Claims) *claim.Claims {
	own, _ := t.Kube.Services.Peek(k)
	first, _ := t.Kube.Services.Peek(leader)
	host := t.ServiceHost(k)
	return &claim.Claims{
		Kind: claim.Member, Created: own.Created, Hosts: []string{host}, Layers: leading.Layers, Leader: leader.Cluster, ClusterLocal: t.ClusterLocal(host),
		ByCluster: len(own.Addresses) > 0 && own.Type == first.Type && !slices.Equal(own.Addresses, first.Addresses),
	}
}

// serviceClaims returns the claims of a Service that leads.
func (t *Tables) serviceClaims(k api.Key, s *kube.Service) *claim.Claims {
	c := &claim.Claims{Kind: claim.Service, Created: s.Created, Hosts: []string{t.ServiceHost(k)}}
	c.Layers = t.layers(s.ExportTo, k.Namespace, settings.ServiceExportTo)
	if s.Type == kube.ExternalName {
		c.Kind, c.Hosts = claim.Alias, []string{s.ExternalName}
	} else if c.Near = t.nearness(k, s); c.Near != mesh.Anywhere {
		c.ByLocality = true
	}
	return c
}

// ServiceHost returns the host of a Service.
func (t *Tables) ServiceHost(k api.Key) string {
	return mesh.FullHost(k.Name, k.Namespace, t.options.Domain)
}

// nearness returns which endpoints of a Service are preferred: by its spec, its annotation, or the annotation of its namespace. Unknown
// values do not count.
func (t *Tables) nearness(k api.Key, s *kube.Service) mesh.Nearness {
	if s.NodeLocal {
		return mesh.OnlyNode
	}
	n, _ := t.Kube.Namespaces.Peek(namespaceKey(k.Cluster, k.Namespace))
	for _, text := range []string{s.Distribution, s.Annotation, n.TrafficDistribution()} {
		if near, known := mesh.ParseNearness(text); known {
			return near
		}
	}
	return mesh.Anywhere
}
