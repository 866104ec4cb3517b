package access

import (
	"maps"
	"net/http"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
)

// What a filter of RBAC writes about the rules that are only tried out, behind the prefix that the filter names.
const (
	triedPolicy = "shadow_effective_policy_id"
	triedResult = "shadow_engine_result"
)

// rbacFilter is a filter of RBAC, for HTTP or for connections.
type rbacFilter struct {
	name         string
	rules, tried *rbacv3.RBAC
	prefix       string
	// strange is true if the filter has fields that are not known here.
	strange bool
}

// rbac goes through a filter of RBAC.
func (e *evaluation) rbac(f rbacFilter) {
	e.stage = AtPolicies
	if f.strange {
		e.stop("the filter " + f.name + " has rules in a form that is not known here")
		return
	}
	if f.tried != nil {
		e.try(f)
	}
	if f.rules == nil {
		return
	}
	matched, policy := e.engine(f.rules)
	if matched == maybe {
		e.doubted(e.because())
		return
	}
	switch f.rules.GetAction() {
	case rbacv3.RBAC_ALLOW:
		if matched == no {
			e.deny(e.forbidden(), "", "no policy with the action ALLOW matches, and there are such policies")
			return
		}
		e.decision.Policy = policy
	case rbacv3.RBAC_DENY:
		if matched == yes {
			e.deny(e.forbidden(), policy, "")
		}
	case rbacv3.RBAC_LOG:
		if matched == yes {
			e.decision.Noted = append(e.decision.Noted, Note{Policy: policy, Audit: true})
		}
	default:
		e.stop("the filter " + f.name + " has an action that is not known here: " + f.rules.GetAction().String())
	}
}

// forbidden is the status of responses to requests that policies deny.
func (e *evaluation) forbidden() int {
	if e.headers == nil {
		return 0
	}
	return http.StatusForbidden
}

// try writes what the rules would do that are only tried out.
func (e *evaluation) try(f rbacFilter) {
	matched, policy := e.engine(f.tried)
	if e.metadata[f.name] == nil {
		e.metadata[f.name] = map[string]any{}
	}
	to := e.metadata[f.name]
	if matched == maybe {
		why := secret{e.because()}
		to[f.prefix+triedPolicy], to[f.prefix+triedResult] = why, why
		return
	}
	allowed := f.tried.GetAction() == rbacv3.RBAC_LOG || (f.tried.GetAction() == rbacv3.RBAC_ALLOW) == (matched == yes)
	to[f.prefix+triedResult] = map[bool]string{true: "allowed", false: "denied"}[allowed]
	if matched == yes {
		to[f.prefix+triedPolicy] = policy
	}
	if matched == yes || !allowed {
		e.decision.Noted = append(e.decision.Noted, Note{Policy: policy, Denies: !allowed})
	}
}

// engine is whether some policy matches, and the name of the first one, in the order of their names.
func (e *evaluation) engine(rules *rbacv3.RBAC) (matched truth, policy string) {
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		switch e.policy(rules.GetPolicies()[name]) {
		case yes:
			e.why = nil
			return yes, name
		case maybe:
			matched = maybe
		}
	}
	return matched, ""
}

func (e *evaluation) policy(p *rbacv3.Policy) truth {
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		return e.unsure("a policy has a condition that is not known here")
	}
	return all([]truth{some(p.GetPermissions(), e.permission), some(p.GetPrincipals(), e.principal)}, func(t truth) truth { return t })
}

func (e *evaluation) permission(p *rbacv3.Permission) truth {
	switch r := p.GetRule().(type) {
	case *rbacv3.Permission_AndRules:
		return all(r.AndRules.GetRules(), e.permission)
	case *rbacv3.Permission_OrRules:
		return some(r.OrRules.GetRules(), e.permission)
	case *rbacv3.Permission_NotRule:
		return not(e.permission(r.NotRule))
	case *rbacv3.Permission_Any:
		return is(r.Any)
	case *rbacv3.Permission_Header:
		return e.header(r.Header)
	case *rbacv3.Permission_UrlPath:
		return e.urlPath(r.UrlPath)
	case *rbacv3.Permission_DestinationIp:
		return e.in(r.DestinationIp, e.Address, "the address of the workload")
	case *rbacv3.Permission_DestinationPort:
		return is(r.DestinationPort == e.Port)
	case *rbacv3.Permission_DestinationPortRange:
		port := int32(e.Port)
		return is(r.DestinationPortRange.GetStart() <= port && port < r.DestinationPortRange.GetEnd())
	case *rbacv3.Permission_Metadata:
		return e.inMetadata(r.Metadata) //nolint:staticcheck // package authz uses it, because all supported versions of Envoy know it
	case *rbacv3.Permission_RequestedServerName:
		if !e.knowsServerName {
			return e.unsure("it depends on the server name that the client asks for (SNI)")
		}
		return e.text(r.RequestedServerName, e.serverName)
	}
	return e.unsure("a policy has a permission that is not known here")
}

func (e *evaluation) principal(p *rbacv3.Principal) truth {
	switch r := p.GetIdentifier().(type) {
	case *rbacv3.Principal_AndIds:
		return all(r.AndIds.GetIds(), e.principal)
	case *rbacv3.Principal_OrIds:
		return some(r.OrIds.GetIds(), e.principal)
	case *rbacv3.Principal_NotId:
		return not(e.principal(r.NotId))
	case *rbacv3.Principal_Any:
		return is(r.Any)
	case *rbacv3.Principal_Authenticated_:
		return e.authenticated(r.Authenticated)
	case *rbacv3.Principal_SourceIp:
		return e.in(r.SourceIp, e.Source, fromAddress) //nolint:staticcheck // Envoy knows the old name still
	case *rbacv3.Principal_DirectRemoteIp:
		return e.in(r.DirectRemoteIp, e.Source, fromAddress)
	case *rbacv3.Principal_RemoteIp:
		return e.in(r.RemoteIp, e.remote, fromAddress)
	case *rbacv3.Principal_Header:
		return e.header(r.Header)
	case *rbacv3.Principal_UrlPath:
		return e.urlPath(r.UrlPath)
	case *rbacv3.Principal_Metadata:
		return e.inMetadata(r.Metadata) //nolint:staticcheck // package authz uses it, because all supported versions of Envoy know it
	}
	return e.unsure("a policy has a principal that is not known here")
}

const fromAddress = "the address of the client"

// authenticated is whether the identity of the client matches.
func (e *evaluation) authenticated(m *rbacv3.Principal_Authenticated) truth {
	switch {
	case e.peer == nil:
		return no
	case m.GetPrincipalName() == nil:
		return yes
	case len(e.peer.uris) == 0: // certificates of the mesh have no other names
		return e.text(m.GetPrincipalName(), "")
	}
	return some(e.peer.uris, func(uri string) truth { return e.text(m.GetPrincipalName(), uri) })
}
