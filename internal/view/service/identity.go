package service

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
)

// spiffeScheme begins the names of workloads.
const spiffeScheme = "spiffe://"

// meshTLS stands among accounts for an endpoint that takes the mesh's TLS.
const meshTLS = ""

// defineIdentities groups selected workloads by who they say they are, so that who a service's endpoints are changes only
// when the first or the last of some identity comes or goes.
func (q *Queries) defineIdentities(g *query.Graph) {
	q.identities = query.GroupBy(g, "selectedIdentities", q.Selected, func(s Selected, add func(omap.Name, omap.Name)) {
		if s.MeshTLS() {
			add(meshTLS, omap.Name(s.name))
		}
		if s.ServiceAccount != "" {
			add(omap.Name(s.ServiceAccount), omap.Name(s.name))
		}
	})
}

// TakesMeshTLS reports whether any endpoint of a service takes the mesh's TLS.
func (q *Queries) TakesMeshTLS(r *query.Reader, s *Service) bool {
	found := false
	q.accounts(r, s, func(account string) { found = found || account == meshTLS })
	return found
}

// Names are the names by which a service's endpoints may prove to be it: those of their accounts, and those the service
// lists. An account is one in every trust domain of the mesh. Without any, nothing is known of who serves.
func (q *Queries) Names(r *query.Reader, s *Service) []string {
	names := slices.Clone(s.SubjectAltNames)
	q.accounts(r, s, func(account string) {
		if account != meshTLS {
			names = append(names, spiffeScheme+q.tables.TrustDomains(r)[0]+"/ns/"+s.Namespace+"/sa/"+account)
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

func (q *Queries) accounts(r *query.Reader, s *Service, add func(account string)) {
	for _, part := range s.Parts {
		who, ok := q.tables.Identities.Get(r, part.Object)
		if !ok {
			continue
		}
		if who.MeshTLS {
			add(meshTLS)
		}
		for _, account := range who.Accounts {
			add(account)
		}
		if len(who.Selector) == 0 {
			continue
		}
		for account := range q.identities.Keys(r, Select(part.Object.Namespace, who.Selector)).All() {
			add(string(account))
		}
	}
}
