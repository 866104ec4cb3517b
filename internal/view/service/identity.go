package service

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// spiffeScheme begins SPIFFE identities of workloads.
const spiffeScheme = "spiffe://"

// meshTLSAccount stands among service accounts for "some endpoint accepts the mesh's TLS". No account has this name.
const meshTLSAccount = ""

// defineIdentities groups selected endpoints by identity. The set of identities of a service therefore changes only when
// the first endpoint of an identity appears or the last one disappears.
func (q *Queries) defineIdentities(g *query.Graph) {
	of := func(s SelectedEndpoint, add func(omap.Name, omap.Name)) {
		if s.MeshTLS {
			add(meshTLSAccount, omap.Name(s.name))
		}
		if s.ServiceAccount != "" {
			add(omap.Name(s.ServiceAccount), omap.Name(s.name))
		}
	}
	q.identities = query.GroupBy(g, "selectedIdentities", q.SelectedEndpoints, of)
	q.podIdentities = query.GroupBy(g, "podIdentities", q.selectedPods, of)
	q.sliceIdentities = query.GroupBy(g, "sliceIdentities", q.sliceEndpoints, of)
}

// AcceptsMeshTLS reports whether any endpoint of a service accepts the mesh's TLS. Pods of a Service may do so at any time, and a
// change of the cluster would interrupt its connections.
func (q *Queries) AcceptsMeshTLS(r *query.Reader, s *Service) bool {
	found := slices.ContainsFunc(s.Declarations, func(p Declaration) bool { return p.isService() && !p.Spec.Headless })
	q.eachAccount(r, s, func(account string) { found = found || account == meshTLSAccount })
	return found
}

// SubjectAltNames are the names that a server certificate of the service may have: the identities of the endpoints'
// service accounts in every trust domain of the mesh, and the names that the service lists. Without any, the identity
// of the server is unknown.
func (q *Queries) SubjectAltNames(r *query.Reader, s *Service) []string {
	names := slices.Clone(s.SubjectAltNames)
	q.eachAccount(r, s, func(account string) {
		if account != meshTLSAccount {
			namespace, name := mesh.AccountIn(s.Namespace, account)
			names = append(names, spiffeScheme+q.tables.TrustDomains(r)[0]+"/ns/"+namespace+"/sa/"+name)
		}
	})
	domains := q.tables.TrustDomains(r)
	for _, name := range slices.Clone(names) {
		id, ok := strings.CutPrefix(name, spiffeScheme)
		_, path, found := strings.Cut(id, "/")
		if !ok || !found {
			continue
		}
		for _, alias := range domains[1:] {
			names = append(names, spiffeScheme+alias+"/"+path)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// eachAccount calls add for every service account of a service's endpoints, and for meshTLSAccount. Endpoints that take no
// requests count, so that clusters do not change when pods become ready or end. For the same reason a Service without endpoints
// keeps the accounts that it had last, as in Istio; the pods of a headless Service change its clusters anyway.
func (q *Queries) eachAccount(r *query.Reader, s *Service, add func(account string)) {
	for _, declaration := range s.Declarations {
		who, ok := q.tables.Identities.Get(r, declaration.Object)
		if !ok {
			continue
		}
		if who.MeshTLS {
			add(meshTLSAccount)
		}
		for _, account := range who.Accounts {
			add(account)
		}
		selected := false
		q.eachSelected(r, declaration, who.Selector, func(account string) {
			selected = true
			add(account)
		})
		if !selected && declaration.isService() && !declaration.Spec.Headless {
			last, _ := q.tables.Kube.LastAccounts.Get(r, declaration.Object)
			for account := range last.All() {
				add(account)
			}
		}
	}
}

// eachSelected calls add for the service accounts of the endpoints that the selector of a declaration picks, or that slices list for it, and for
// meshTLSAccount.
func (q *Queries) eachSelected(r *query.Reader, declaration Declaration, selector map[string]string, add func(account string)) {
	read := besides[names]{
		slices:    func(k api.Key) names { return q.sliceIdentities.Keys(r, k) },
		workloads: func(s Selection) names { return q.identities.Keys(r, s) },
		pods:      func(s Selection) names { return q.podIdentities.Keys(r, s) },
	}
	for accounts := range read.of(declaration, selector) {
		for account := range accounts.All() {
			add(string(account))
		}
	}
}
