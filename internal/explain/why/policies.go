package why

import (
	"fmt"
	"slices"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// inboundPolicies adds the policies that apply to the workload.
func (i *inquiry) inboundPolicies() {
	set := policy.SetOf(i.Tables, i.r, i.class)
	var list []reply.Policy
	for k := range set.Members(i.Tables, i.r, api.KindRequestAuthentication).All() {
		if row, ok := i.Tables.Security.Authentications.Peek(k); ok {
			list = append(list, i.tokenPolicy(row))
		}
	}
	var custom []*policies.Authorization
	for k := range set.Members(i.Tables, i.r, api.KindAuthorizationPolicy).All() {
		row, ok := i.Tables.Security.Authorizations.Peek(k)
		if !ok {
			continue
		}
		p := reply.Policy{
			Object: i.Ref(k), Action: row.Spec.GetAction().String(), Rules: len(row.Spec.GetRules()), DryRun: row.DryRun, Provider: row.Spec.GetProvider().GetName(),
		}
		if o, ok := i.Tables.Objects.Peek(k); ok && o.Substitute {
			p.Denies = "its document is refused, and no earlier version is known"
		}
		if row.Spec.GetAction() == security.AuthorizationPolicy_CUSTOM {
			custom = append(custom, row)
			p.DryRun = false // an external authorizer cannot be tried out
		}
		list = append(list, p)
	}
	if trouble := i.customTrouble(custom); trouble != "" {
		for n := range list {
			if list[n].Action == security.AuthorizationPolicy_CUSTOM.String() {
				list[n].Denies = trouble
			}
		}
	}
	i.addRefusedPolicies()
	order := reply.Actions()
	slices.SortStableFunc(list, func(a, b reply.Policy) int { return slices.Index(order, a.Action) - slices.Index(order, b.Action) })
	i.answer.Policies = list
}

// addRefusedPolicies adds the documents that were refused and might be about the workload. A policy that is not in force denies
// nothing.
func (i *inquiry) addRefusedPolicies() {
	seen := 0
	for _, p := range i.Problems.All() {
		k := p.Object
		about := k.Kind == api.KindAuthorizationPolicy || k.Kind == api.KindRequestAuthentication || k.Kind == api.KindPeerAuthentication
		if _, inForce := i.Tables.Objects.Peek(k); inForce || !about || p.Severity != api.Error || seen == maxReasons ||
			k.Namespace != i.class.Namespace && k.Namespace != i.Tables.RootNamespace(i.r) {
			continue
		}
		seen++
		i.answer.Reasons = append(i.answer.Reasons, reply.Reason{
			Text: "this document was refused, so it does not count: " + p.Reason, Fix: "correct the document",
			Object: new(reply.RefTo(k, p.Position)),
		})
		i.answer.Lists.StatedReasons = append(i.answer.Lists.StatedReasons, p.Reason)
	}
}

// customTrouble says why the provider of CUSTOM policies cannot be asked; empty if it can.
func (i *inquiry) customTrouble(list []*policies.Authorization) string {
	if len(list) == 0 {
		return ""
	}
	name := list[0].Spec.GetProvider().GetName()
	for _, other := range list {
		if o := other.Spec.GetProvider().GetName(); o != name {
			return fmt.Sprintf("only one provider can be asked about one workload, and its policies name %q and %q", name, o)
		}
	}
	provider, ok := i.Tables.Security.Providers.Get(i.r, name)
	if !ok {
		return fmt.Sprintf("the mesh configuration has no extension provider %q that decides about requests", name)
	}
	_, trouble := i.Queries.Scope.Authorizer(i.r, scope.SetOf(i.class).WithoutNames(), provider)
	return trouble
}

// tokenPolicy describes a RequestAuthentication.
func (i *inquiry) tokenPolicy(row *policies.Authentication) reply.Policy {
	p := reply.Policy{Object: i.Ref(row.Object), Action: reply.TokenAction, Rules: len(row.Spec.GetJwtRules())}
	for _, rule := range row.Spec.GetJwtRules() {
		is := reply.Issuer{Name: rule.GetIssuer(), Keys: "inline keys", Required: rule.GetPresence() == security.JWTRule_REQUIRED}
		address, only, _ := i.Tables.Security.FetchedByProxy(rule)
		_, unseen := i.Queries.Scope.KeyServer(i.r, scope.SetOf(i.class).WithoutNames(), address)
		switch source, fetched := policies.KeySourceOf(rule); {
		case address != "" && unseen == "":
			is.Keys = "keys that Envoy fetches from " + source.Shown()
		case only:
			is.Missing, is.Keys = true, "keys of "+source.Shown()+", which Envoy cannot fetch: "+unseen
		case fetched:
			set, _ := i.Tables.Security.KeySets.Get(i.r, source)
			is.Missing = set.Keys == ""
			switch {
			case is.Missing && set.Failure == "":
				is.Keys = "keys of " + source.Shown() + ", which are not fetched yet"
			case is.Missing:
				is.Keys = "keys of " + source.Shown() + ", which cannot be fetched: " + set.Failure
			case set.Failure != "":
				is.Keys = "last good keys of " + source.Shown() + ", which cannot be fetched any more: " + set.Failure
			default:
				is.Keys = "keys of " + source.Shown()
			}
		}
		p.Issuers = append(p.Issuers, is)
	}
	return p
}
