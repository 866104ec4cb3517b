package authz

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// The names of the filters, which are also the namespaces of the metadata that they write.
const (
	httpFilterName = "envoy.filters.http.rbac"
	tcpFilterName  = "envoy.filters.network.rbac"
)

// tcpStats is the prefix of the statistics of network filters.
const tcpStats = "tcp."

// enforced are the policies of one action.
type enforced struct {
	action rbacv3.RBAC_Action
	// any says that there is a policy that counts, dry that there is one that is only tried out.
	any, dry bool
	// httpRules and tcpRules are in force; httpDry and tcpDry are only tried out.
	httpRules, tcpRules, httpDry, tcpDry map[string]*rbacv3.Policy
	dryPrefix                            string
}

func (e *enforced) add(p *rules) {
	httpTo, tcpTo := &e.httpRules, &e.tcpRules
	if p.dryRun {
		e.dry = true
		httpTo, tcpTo = &e.httpDry, &e.tcpDry
	} else {
		e.any = true
	}
	name(p, p.http, httpTo)
	name(p, p.tcp, tcpTo)
}

// name adds the policies of Envoy for a policy under their names.
func name(p *rules, from map[int]*rbacv3.Policy, to *map[string]*rbacv3.Policy) {
	if *to == nil {
		*to = map[string]*rbacv3.Policy{}
	}
	for i, rule := range from {
		(*to)[policyName(p.key, i)] = rule
	}
}

// rbac returns the enforced policies, and the dry-run policies; nil for none.
func (e *enforced) rbac(rules, dry map[string]*rbacv3.Policy) (enforced, tried *rbacv3.RBAC) {
	if e.any {
		enforced = &rbacv3.RBAC{Action: e.action, Policies: rules}
	}
	if e.dry {
		tried = &rbacv3.RBAC{Action: e.action, Policies: dry}
	}
	return enforced, tried
}

func (e *enforced) http() []*hcmv3.HttpFilter {
	rules, tried := e.rbac(e.httpRules, e.httpDry)
	if rules == nil && tried == nil {
		return nil
	}
	f := &rbachttpv3.RBAC{Rules: rules, ShadowRules: tried}
	if tried != nil {
		f.ShadowRulesStatPrefix = e.dryPrefix
	}
	return []*hcmv3.HttpFilter{envoy.HTTPFilter(httpFilterName, f)}
}

func (e *enforced) tcp() []*listenerv3.Filter {
	rules, tried := e.rbac(e.tcpRules, e.tcpDry)
	if rules == nil && tried == nil {
		return nil
	}
	f := &rbactcpv3.RBAC{Rules: rules, ShadowRules: tried, StatPrefix: tcpStats}
	if tried != nil {
		f.ShadowRulesStatPrefix = e.dryPrefix
	}
	return []*listenerv3.Filter{envoy.NetworkFilter(tcpFilterName, f)}
}

// actions are policies by action.
type actions struct {
	audit, deny, allow enforced
	custom             []*rules
	broken             bool
}

func (a *actions) add(p *rules) {
	a.broken = a.broken || p.broken
	switch p.action {
	case security.AuthorizationPolicy_CUSTOM:
		a.custom = append(a.custom, p)
	case security.AuthorizationPolicy_AUDIT:
		a.audit.action = rbacv3.RBAC_LOG
		a.audit.add(p)
	case security.AuthorizationPolicy_DENY:
		a.deny.action, a.deny.dryPrefix = rbacv3.RBAC_DENY, "istio_dry_run_deny_"
		a.deny.add(p)
	default:
		a.allow.action, a.allow.dryPrefix = rbacv3.RBAC_ALLOW, "istio_dry_run_allow_"
		a.allow.add(p)
	}
}

// denyAll denies everything. why is the name of the policy that access logs show.
func denyAll(why string) Filters {
	deny := enforced{action: rbacv3.RBAC_DENY, any: true, httpRules: map[string]*rbacv3.Policy{why: matchEverything()}}
	deny.tcpRules = deny.httpRules
	return Filters{HTTP: deny.http(), TCP: deny.tcp()}
}
