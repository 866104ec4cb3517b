// Package secret answers proxies that ask the control plane for Secrets by name: "kubernetes://NAME" for a certificate with its key,
// and "kubernetes://NAME-cacert" for the roots with which the certificates of others are verified; and for the roots in a ConfigMap:
// "configmap://NAMESPACE/NAME-cacert".
//
// Invariants: A proxy gets Secrets only if it has shown who it is, and only Secrets of the namespace of its service account. It gets
// a cluster's Secrets only if the API server says that the account may read them; a folder's Secrets belong to its writer. Of a ConfigMap,
// which is no secret, it gets the roots and nothing else: of its namespace, and where a DestinationRule beside the ConfigMap names it. Refusals
// are decided before any Secret is read. Neither answers nor reasons of refusals have a part of another proxy's Secret.
//
// The package starts no goroutines.
package secret

import (
	"cmp"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/credential"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Options say where Secrets come from.
type Options struct {
	// Folder is true if there is a folder of Secrets, and Kubernetes if the Secrets of the cluster of the control plane are read.
	Folder, Kubernetes bool
}

// Queries answer proxies.
type Queries struct {
	o      Options
	tables *state.Tables
	// answers are the answers to permitted requests. All proxies of a namespace share them.
	answers query.Query[secretKey, resource.Answer]
}

// secretKey is a part of a Secret, under the name that proxies know it by.
type secretKey struct {
	secret api.Key
	roots  bool
	name   string
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, o Options) *Queries {
	q := &Queries{o: o, tables: t}
	q.answers = query.Guard(g, "secret", resource.Answer.Equal, resource.Answer{Denied: true}, func(r *query.Reader, k secretKey) (resource.Answer, bool) {
		row, ok := t.Kube.Secrets.Get(r, k.secret)
		if !ok {
			return resource.Answer{}, false
		}
		return translate(k, row), true
	})
	return q
}

// Name is what the name of a secret says.
type Name struct {
	// Namespace is the Secret's namespace; empty for the proxy's.
	Namespace string
	// ConfigMap is true if it is the name of the roots in a ConfigMap.
	ConfigMap bool
	// Secret is the name of the Secret, and roots is true if its roots are asked for. Then a Secret whose own name ends with
	// "-cacert" goes before the one with both parts.
	Secret string
	Roots  bool
}

// anyNamespace is the stand-in for the namespace that a name does not give, when the rest of the name is checked.
const anyNamespace = "any"

// ParseName parses the name of a secret. The reason says why the name is invalid; empty if it is valid.
func ParseName(name string) (n Name, reason string) {
	if rest, ok := strings.CutPrefix(name, destination.ConfigMapScheme); ok {
		return parseConfigMap(rest)
	}
	rest, ok := strings.CutPrefix(name, envoy.SecretScheme)
	if provider, external := strings.CutPrefix(name, scope.SecretServiceScheme); external {
		return n, fmt.Sprintf("the service of an extension provider with sds.name %q would serve it, and the proxy knows no such service; correct extensionProviders or the name",
			strings.TrimSuffix(provider, envoy.RootsSuffix))
	}
	if !ok {
		return n, fmt.Sprintf("names of secrets that the control plane serves have the form %s[NAMESPACE/]NAME or %sNAMESPACE/NAME; other schemes are not supported yet", envoy.SecretScheme, destination.ConfigMapScheme)
	}
	n.Secret = rest
	if namespace, of, cut := strings.Cut(rest, "/"); cut {
		n.Namespace, n.Secret = namespace, of
	}
	if base, ok := strings.CutSuffix(n.Secret, envoy.RootsSuffix); ok {
		n.Secret, n.Roots = base, true
	}
	if api.CheckNames(cmp.Or(n.Namespace, anyNamespace), n.Secret) != "" || n.Namespace == "" && strings.Contains(rest, "/") {
		return Name{}, fmt.Sprintf("it does not have the form %s[NAMESPACE/]NAME of a Secret", envoy.SecretScheme)
	}
	return n, ""
}

// parseConfigMap parses the name of the roots in a ConfigMap, without its scheme.
func parseConfigMap(rest string) (n Name, reason string) {
	rest, roots := strings.CutSuffix(rest, envoy.RootsSuffix)
	namespace, name, _ := strings.Cut(rest, "/")
	switch {
	case api.CheckNames(namespace, name) != "":
		return n, fmt.Sprintf("it does not have the form %sNAMESPACE/NAME of a ConfigMap", destination.ConfigMapScheme)
	case !roots:
		return n, "a ConfigMap has the certificates of authorities only, and no certificate with its key: name a Secret for mutual TLS"
	}
	return Name{Namespace: namespace, ConfigMap: true, Secret: name, Roots: true}, ""
}

// Credential is the credentialName by which a rule or a server names a ConfigMap.
func (n Name) Credential() string { return destination.ConfigMapScheme + n.Namespace + "/" + n.Secret }

// Secrets returns the Secrets that may have what a name asks for, the first one that exists decides.
func (n Name) Secrets() []string {
	if n.Roots && !n.ConfigMap {
		return []string{n.Secret + envoy.RootsSuffix, n.Secret}
	}
	return []string{n.Secret}
}

// Find answers a proxy that requests a secret, which it knows as another name, or as the same.
func (q *Queries) Find(r *query.Reader, p *proxy.Proxy, name, as string) resource.Answer {
	denied := func(format string, args ...any) resource.Answer {
		return resource.Answer{Denied: true, Reason: fmt.Sprintf(format, args...)}
	}
	n, reason := ParseName(name)
	who := p.Identity
	switch {
	case !q.o.Folder && !q.o.Kubernetes:
		return resource.Answer{Reason: "the control plane has no Secrets: set --credentialsDir"}
	case reason != "":
		return resource.Answer{Reason: reason}
	case who.IsZero():
		return denied("the proxy has not shown who it is; connect it to the control plane over TLS, with a certificate of the mesh or a token")
	case n.ConfigMap:
		return q.findConfigMap(r, who.Namespace, as, n)
	case n.Namespace != "" && n.Namespace != who.Namespace:
		return denied("the Secret is of namespace %s, and the proxy of %s; proxies get Secrets of their own namespace only", n.Namespace, who.Namespace)
	}
	if q.o.Folder {
		if a, found := q.look(r, "", who.Namespace, as, n); found {
			return a
		}
	}
	if !q.o.Kubernetes {
		return resource.Answer{Reason: fmt.Sprintf("there is no folder %s/%s in --credentialsDir", who.Namespace, n.Secret)}
	}
	switch may, known := q.tables.Kube.SecretReaders.Get(r, connected.Account{Namespace: who.Namespace, Name: who.ServiceAccount}); {
	case !known:
		return resource.Answer{Pending: true}
	case may.Trouble != "":
		return denied("it is not known whether the service account %s/%s may list Secrets there: %s", who.Namespace, who.ServiceAccount, may.Trouble)
	case !may.Allowed:
		return denied("the service account %s/%s may not list Secrets there; bind it to a Role of the namespace with the rule {apiGroups: [\"\"], resources: [secrets], verbs: [list]}",
			who.Namespace, who.ServiceAccount)
	}
	if a, found := q.look(r, q.tables.ClusterID(), who.Namespace, as, n); found {
		return a
	}
	return resource.Answer{Reason: fmt.Sprintf("there is no Secret %s/%s", who.Namespace, n.Secret)}
}

// findConfigMap answers a proxy of a namespace that requests the roots in a ConfigMap. They are in the folder of Secrets, or in the cluster.
func (q *Queries) findConfigMap(r *query.Reader, namespace, as string, n Name) resource.Answer {
	if n.Namespace != namespace && !q.namedBeside(r, n) {
		return resource.Answer{Denied: true, Reason: fmt.Sprintf(
			"the ConfigMap is of namespace %s, and the proxy of %s; proxies get ConfigMaps of their own namespace, and of others what a DestinationRule there names", n.Namespace, namespace)}
	}
	if q.o.Folder {
		if a, found := q.look(r, "", n.Namespace, as, n); found {
			return a
		}
	}
	if !q.o.Kubernetes {
		return resource.Answer{Reason: fmt.Sprintf("there is no folder %s/%s in --credentialsDir", n.Namespace, n.Secret)}
	}
	if a, found := q.look(r, q.tables.ClusterID(), n.Namespace, as, n); found {
		return a
	}
	return resource.Answer{Reason: fmt.Sprintf("there is no ConfigMap %s/%s", n.Namespace, n.Secret)}
}

// namedBeside reports whether a DestinationRule of the namespace of a ConfigMap names it.
func (q *Queries) namedBeside(r *query.Reader, n Name) bool {
	for user := range q.tables.CredentialUsers.Group(r, n.Credential()).All() {
		if user.Namespace == n.Namespace {
			return true
		}
	}
	return false
}

// PullSecret returns the credentials of registries in a Secret. Without any, why says the reason, or that they are pending.
func (q *Queries) PullSecret(r *query.Reader, namespace, name string) (config []byte, why resource.Answer) {
	key := api.Key{Kind: kube.KindSecret, Namespace: namespace, Name: name}
	if q.o.Folder {
		if row, ok := q.tables.Kube.Secrets.Get(r, key); ok {
			return dockerOf(key, row)
		}
	}
	if !q.o.Kubernetes {
		return nil, resource.Answer{Reason: fmt.Sprintf("there is no folder %s/%s in --credentialsDir", namespace, name)}
	}
	key.Cluster = q.tables.ClusterID()
	row, ok := q.tables.Kube.Secrets.Get(r, key)
	if !ok {
		return nil, resource.Answer{Pending: true} // it has not been looked for yet
	}
	return dockerOf(key, row)
}

func dockerOf(k api.Key, row *kube.Secret) (config []byte, why resource.Answer) {
	at := k.Namespace + "/" + k.Name
	if row.Content == nil {
		return nil, resource.Answer{Reason: cmp.Or(row.Trouble, "there is no Secret "+at)}
	}
	config, ok := row.Content.Docker()
	if !ok {
		return nil, resource.Answer{Reason: fmt.Sprintf("the Secret %s has no credentials of registries; add %s", at, credential.DockerConfig)}
	}
	return config, resource.Answer{}
}

// look looks for the Secrets that a name asks for in a cluster, or in the folder. found is false if all of them are known not to
// exist.
func (q *Queries) look(r *query.Reader, cluster, namespace, name string, n Name) (a resource.Answer, found bool) {
	kind := kube.KindSecret
	if n.ConfigMap && cluster != "" {
		kind = kube.KindConfigMap
	}
	for _, of := range n.Secrets() {
		a, known := q.answers.Get(r, secretKey{api.Key{Kind: kind, Namespace: namespace, Name: of, Cluster: cluster}, n.Roots, name})
		switch {
		case !known && cluster != "":
			return resource.Answer{Pending: true}, true // it has not been looked for yet
		case a != resource.Answer{}:
			return a, true
		}
	}
	return resource.Answer{}, false
}

// translate makes the resource; the zero value if there is no such Secret.
func translate(k secretKey, row *kube.Secret) resource.Answer {
	at := k.secret.Namespace + "/" + k.secret.Name
	switch {
	case row.Content == nil && row.Trouble == "":
		return resource.Answer{}
	case row.Content == nil:
		return resource.Answer{Reason: row.Trouble}
	}
	pair, roots := row.Content.Broken()
	if k.roots {
		return rootsOf(k.name, at, row.Content, roots)
	}
	return pairOf(k.name, at, row.Content, pair)
}

func pairOf(name, at string, s *credential.Secret, broken bool) resource.Answer {
	chain, key, ok := s.Pair()
	switch {
	case !ok && broken:
		return resource.Answer{Reason: fmt.Sprintf("the certificate or the key of %s cannot be used; a problem says why", at)}
	case !ok:
		return resource.Answer{Reason: fmt.Sprintf("%s has no certificate; add %s and %s", at, credential.TLSCertificate, credential.TLSKey)}
	}
	c := &tlsv3.TlsCertificate{CertificateChain: inline(chain), PrivateKey: inline(key)}
	if staple := s.Staple(); staple != nil {
		c.OcspStaple = inline(staple)
	}
	return resource.Answer{Resource: resource.New(resource.Secret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: c}})}
}

// rootsOf never makes an empty secret: Envoy would accept every server with it.
func rootsOf(name, at string, s *credential.Secret, broken bool) resource.Answer {
	roots, crl, ok := s.Roots()
	switch {
	case !ok && broken:
		return resource.Answer{Reason: fmt.Sprintf("the roots of %s cannot be used; a problem says why", at)}
	case !ok:
		return resource.Answer{Reason: fmt.Sprintf("%s has no roots; add %s", at, credential.TLSRoots)}
	}
	v := &tlsv3.CertificateValidationContext{TrustedCa: inline(roots)}
	if crl != nil {
		v.Crl = inline(crl)
	}
	return resource.Answer{Resource: resource.New(resource.Secret, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: v}})}
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
