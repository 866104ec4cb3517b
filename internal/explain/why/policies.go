package why

import (
	"fmt"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/view/policy"
	"github.com/pilotmesh/pilot/internal/view/scope"
)

// tokenAction is the action of RequestAuthentications in explanations.
const tokenAction = "TOKEN"

// Policy is a policy about requests to the workload.
type Policy struct {
	Object Ref `json:"object"`
	// Action is CUSTOM, AUDIT, DENY or ALLOW, or TOKEN for a RequestAuthentication.
	Action string `json:"action"`
	// Rules is the number of its rules. DryRun is true if it is only tried out.
	Rules  int  `json:"rules"`
	DryRun bool `json:"dry_run,omitempty"`
	// Provider is the external authorizer that it asks.
	Provider string `json:"provider,omitempty"`
	// Issuers are the issuers of tokens.
	Issuers []Issuer `json:"issuers,omitempty"`
	// Denies says why it denies the requests that it matches although it should not; empty if it works as written.
	Denies string `json:"denies,omitempty"`
}

// Issuer is an issuer of tokens.
type Issuer struct {
	Name string `json:"name"`
	// Keys says where its keys come from.
	Keys string `json:"keys"`
	// Required is true if every request must have one of its tokens.
	Required bool `json:"required,omitempty"`
	// Missing is true if its keys are not known, so that all its tokens are rejected.
	Missing bool `json:"missing,omitempty"`
}

// evaluated are the actions in the order in which Envoy evaluates them.
func evaluated() []string {
	return []string{
		security.AuthorizationPolicy_CUSTOM.String(), tokenAction, security.AuthorizationPolicy_AUDIT.String(),
		security.AuthorizationPolicy_DENY.String(), security.AuthorizationPolicy_ALLOW.String(),
	}
}

// inboundPolicies adds the policies that apply to the workload.
func (i *inquiry) inboundPolicies() {
	set := policy.SetOf(i.Tables, i.r, i.class)
	var list []Policy
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
		p := Policy{
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
	order := evaluated()
	slices.SortStableFunc(list, func(a, b Policy) int { return slices.Index(order, a.Action) - slices.Index(order, b.Action) })
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
		i.answer.Reasons = append(i.answer.Reasons, Reason{
			Text: "this document was refused, so it does not count: " + p.Reason, Fix: "correct the document",
			Object: new(RefTo(k, p.Position)),
		})
		i.answer.statedReasons = append(i.answer.statedReasons, p.Reason)
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
func (i *inquiry) tokenPolicy(row *policies.Authentication) Policy {
	p := Policy{Object: i.Ref(row.Object), Action: tokenAction, Rules: len(row.Spec.GetJwtRules())}
	for _, rule := range row.Spec.GetJwtRules() {
		is := Issuer{Name: rule.GetIssuer(), Keys: "inline keys", Required: rule.GetPresence() == security.JWTRule_REQUIRED}
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

// policies writes the policies that apply to a workload.
func (p text) policies(list []Policy) {
	p.Heading("policies, in the order in which Envoy evaluates them")
	for _, one := range list {
		at := one.Object.Position()
		if at == "" {
			at = "cluster"
		}
		p.Line("  %s\t%s\t%s\t%s", one.Action, one.Object.Key(), at, one.summary())
	}
	if !slices.ContainsFunc(list, func(p Policy) bool { return p.Action == security.AuthorizationPolicy_ALLOW.String() && !p.DryRun }) {
		p.Line("  what nothing denies is allowed: no policy with the action ALLOW applies")
	} else {
		p.Line("  what no policy with the action ALLOW matches is denied")
	}
	for _, one := range list {
		if one.Denies != "" {
			p.Line("  %s denies what it matches: %s", one.Object.Key(), one.Denies)
		}
		for _, is := range one.Issuers {
			p.Line("  %s", is.line(one.Object))
		}
	}
}

// String says what the policy does, without its name.
func (p Policy) String() string { return p.summary() }

func (is Issuer) line(of Ref) string {
	text := fmt.Sprintf("%s: issuer %q, %s", of.Key(), is.Name, is.Keys)
	if is.Required {
		text += "; every request must have one of its tokens"
	}
	if is.Missing {
		text += "; until then its tokens are rejected"
	}
	return text
}

// summary describes a policy in some words.
func (p Policy) summary() string {
	parts := []string{"1 rule"}
	if p.Rules != 1 {
		parts[0] = fmt.Sprintf("%d rules", p.Rules)
	}
	switch {
	case p.Rules == 0 && p.Action == security.AuthorizationPolicy_ALLOW.String():
		parts = append(parts, "so it allows nothing")
	case p.Rules == 0 && p.Action != tokenAction:
		parts = append(parts, "so it matches nothing")
	}
	if p.Provider != "" {
		parts = append(parts, "asks the provider "+p.Provider)
	}
	if p.DryRun {
		parts = append(parts, "only tried out")
	}
	return strings.Join(parts, ", ")
}
