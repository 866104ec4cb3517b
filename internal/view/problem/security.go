package problem

import (
	"fmt"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

func (f *findings) authorizationPolicy() {
	row, ok := f.q.tables.Security.Authorizations.Get(f.r, f.key)
	if !ok {
		return
	}
	if f.policySelector(); len(f.list) == 0 { // it has no effect for more than one reason otherwise
		f.unverified(row)
		f.unidentified(row)
	}
	if row.Spec.GetAction() == security.AuthorizationPolicy_CUSTOM {
		f.provider(row)
	}
}

// provider warns of a CUSTOM policy whose provider cannot be asked.
func (f *findings) provider(row *policies.Authorization) {
	const at, effect = "spec.provider.name", "what the policy matches is denied"
	name := row.Spec.GetProvider().GetName()
	provider, ok := f.q.tables.Security.Providers.Get(f.r, name)
	if !ok {
		f.fail("policy-no-provider", at, "the mesh configuration has no extension provider %q of the kind envoyExtAuthzHttp or envoyExtAuthzGrpc: %s", name, effect)
		return
	}
	if f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return // it depends on the namespace of the workload
	}
	if _, trouble := f.q.scope.Authorizer(f.r, scope.Set{Namespace: f.key.Namespace}, provider); trouble != "" {
		f.fail("policy-no-provider", at, "%s: %s", trouble, effect)
	}
	if provider.GetEnvoyExtAuthzHttp() != nil {
		f.connectionsWithoutProvider(row)
	}
	read := 0
	for k := range f.q.tables.Security.CustomForAll.Group(f.r, f.key.Namespace).All() {
		if read++; read > maxChecked || k.Compare(f.key) >= 0 {
			return // the other one has the problem
		}
		if other, ok := f.q.tables.Security.Authorizations.Get(f.r, k); ok && other.Spec.GetProvider().GetName() != name {
			f.conflict("policy-two-providers", at, "%s asks the provider %q, and only one provider can be asked about one workload: where both policies apply, what either matches is denied",
				k, other.Spec.GetProvider().GetName())
			return
		}
	}
}

// connectionsWithoutProvider warns of a policy whose provider is asked over HTTP and that applies to another port of a workload.
func (f *findings) connectionsWithoutProvider(row *policies.Authorization) {
	all := len(row.Spec.GetSelector().GetMatchLabels()) == 0
	checked := 0
	for id := range f.q.tables.ProxiesIn.Group(f.r, f.key.Namespace).All() {
		if checked++; checked > maxChecked {
			return
		}
		class, ok := f.q.scope.Class.Get(f.r, string(id))
		if !ok || !all && !class.Policies.Has(f.key) {
			continue
		}
		for port := range class.Inbound.All() {
			if port.Protocol == mesh.TCP && aboutPort(row.Spec, port.Number) {
				f.warn("policy-provider-http", "spec.provider.name", "this provider is asked over HTTP, so connections to port %d of %s, which is not HTTP, are denied; name the HTTP ports in to.operation.ports, or use a gRPC provider",
					port.Number, port.Host)
				return
			}
		}
	}
}

// aboutPort reports whether some rule of a policy may match connections to a port.
func aboutPort(spec *security.AuthorizationPolicy, port uint32) bool {
	for _, rule := range spec.GetRules() {
		if len(rule.GetTo()) == 0 {
			return true
		}
		for _, to := range rule.GetTo() {
			if ports := to.GetOperation().GetPorts(); len(ports) == 0 || slices.Contains(ports, strconv.Itoa(int(port))) {
				return true
			}
		}
	}
	return false
}

// policySelector warns of a selector that selects no known workload.
func (f *findings) policySelector() {
	selection, ok := f.q.tables.Security.Selections.Get(f.r, f.key)
	if !ok || selection.Labels.Empty() || selection.Targeted || f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return
	}
	f.selectorWithoutWorkload("spec.selector", mesh.LabelMap(selection.Labels), func(id string) bool {
		class, ok := f.q.scope.Class.Get(f.r, id)
		return ok && class.Policies.Has(f.key)
	})
}

func (f *findings) requestAuthentication() {
	row, ok := f.q.tables.Security.Authentications.Get(f.r, f.key)
	if !ok {
		return
	}
	f.policySelector()
	for i, rule := range row.Spec.GetJwtRules() {
		if i == maxChecked {
			return
		}
		source, fetched := policies.KeySourceOf(rule)
		if !fetched {
			continue
		}
		at := fmt.Sprintf("spec.jwtRules[%d]", i)
		if address, only, _ := f.q.tables.Security.FetchedByProxy(rule); only {
			if f.key.Namespace == f.q.tables.RootNamespace(f.r) {
				continue // it depends on the namespace of the workload
			}
			if _, trouble := f.q.scope.KeyServer(f.r, scope.Set{Namespace: f.key.Namespace}, address); trouble != "" {
				f.fail("keys-unknown", at+".jwksUri", "proxies cannot fetch the keys of this issuer, so its tokens are rejected: %s; declare it in a ServiceEntry, or set PILOT_JWT_ENABLE_REMOTE_JWKS=hybrid", trouble)
			}
			continue
		}
		if source.URL != "" {
			at += ".jwksUri"
		} else {
			at += ".issuer"
		}
		set, followed := f.q.tables.Security.KeySets.Get(f.r, source)
		switch {
		case !followed || set.Failure == "": // no keys are fetched where configuration is only analysed
		case set.Keys == "":
			f.fail("keys-unknown", at, "the keys of this issuer are not known, so its tokens are rejected: %s", set.Failure)
		default:
			f.warn("keys-stale", at, "the keys of this issuer cannot be fetched any more, and the last ones stay in force: %s", set.Failure)
		}
	}
}
