package authz

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// translation is the translation of one policy, for HTTP or for other connections.
type translation struct {
	key          api.Key
	trustDomains []string
	// tcp is true for connections that are not HTTP. Restricting is true for policies that restrict access when they match. Of their
	// rules, what connections do not have is left out, so that they match more. A rule of an ALLOW policy is dropped as a whole, so
	// that it allows less.
	tcp, restricting bool
	// wide is true for the values that are translated now if to match more of them restricts access.
	wide bool
}

// rules returns the policies of Envoy for the rules of a policy, by the position of the rule.
func (t *translation) rules(spec *security.AuthorizationPolicy) map[int]*rbacv3.Policy {
	all := map[int]*rbacv3.Policy{}
	for i, rule := range spec.GetRules() {
		if p := t.rule(rule); p != nil {
			all[i] = p
		}
	}
	if len(spec.GetRules()) == 0 {
		all[0] = matchNothing()
	}
	return all
}

// rule returns the policy of Envoy for a rule; nil if the rule is dropped.
func (t *translation) rule(rule *security.Rule) *rbacv3.Policy {
	var principals []*rbacv3.Principal
	var permissions []*rbacv3.Permission
	for _, when := range rule.GetWhen() {
		a, known := attributeOf(when.GetKey())
		if !known { // validation refuses it: a rule that is not understood restricts access as far as it can
			if !t.restricting {
				return nil
			}
			continue
		}
		if !t.addField(field{a, when.Values, when.NotValues}, &principals, &permissions) {
			return nil
		}
	}
	p := &rbacv3.Policy{}
	for _, from := range rule.GetFrom() {
		own, none := principals[:len(principals):len(principals)], []*rbacv3.Permission(nil)
		if !t.addFields(sourceFields(from.GetSource()), &own, &none) {
			return nil
		}
		p.Principals = append(p.Principals, andPrincipals(own))
	}
	if len(rule.GetFrom()) == 0 {
		p.Principals = append(p.Principals, andPrincipals(principals))
	}
	for _, to := range rule.GetTo() {
		own, none := permissions[:len(permissions):len(permissions)], []*rbacv3.Principal(nil)
		if !t.addFields(operationFields(to.GetOperation()), &none, &own) {
			return nil
		}
		p.Permissions = append(p.Permissions, andPermissions(own))
	}
	if len(rule.GetTo()) == 0 {
		p.Permissions = append(p.Permissions, andPermissions(permissions))
	}
	return p
}

// field is a field of a source or operation, or a condition.
type field struct {
	attribute
	values, notValues []string
}

func sourceFields(s *security.Source) []field {
	return []field{
		{attribute{principal: peer}, s.GetPrincipals(), s.GetNotPrincipals()},
		{attribute{principal: requestPrincipal, onlyHTTP: true}, s.GetRequestPrincipals(), s.GetNotRequestPrincipals()},
		{attribute{principal: identityIn(namespaceRegex)}, s.GetNamespaces(), s.GetNotNamespaces()},
		{attribute{principal: serviceAccount}, s.GetServiceAccounts(), s.GetNotServiceAccounts()},
		{attribute{principal: identityIn(trustDomainRegex)}, s.GetTrustDomains(), s.GetNotTrustDomains()},
		{attribute{principal: directAddress}, s.GetIpBlocks(), s.GetNotIpBlocks()},
		{attribute{principal: remoteAddress}, s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks()},
	}
}

func operationFields(o *security.Operation) []field {
	return []field{
		{attribute{permission: requestHost, onlyHTTP: true}, o.GetHosts(), o.GetNotHosts()},
		{attribute{permission: destinationPort}, o.GetPorts(), o.GetNotPorts()},
		{attribute{permission: requestMethod, onlyHTTP: true}, o.GetMethods(), o.GetNotMethods()},
		{attribute{permission: requestPath, onlyHTTP: true}, o.GetPaths(), o.GetNotPaths()},
	}
}

func (t *translation) addFields(fields []field, principals *[]*rbacv3.Principal, permissions *[]*rbacv3.Permission) bool {
	for _, f := range fields {
		if !t.addField(f, principals, permissions) {
			return false
		}
	}
	return true
}

// addField adds what a field demands. ok is false if the rule must be dropped.
func (t *translation) addField(f field, principals *[]*rbacv3.Principal, permissions *[]*rbacv3.Permission) (ok bool) {
	if len(f.values)+len(f.notValues) == 0 {
		return true
	}
	if t.tcp && f.onlyHTTP {
		return t.restricting
	}
	for _, side := range []struct {
		values []string
		not    bool
	}{{f.values, false}, {f.notValues, true}} {
		if len(side.values) == 0 {
			continue
		}
		var who []*rbacv3.Principal
		var what []*rbacv3.Permission
		unknown := false
		t.wide = t.restricting != side.not
		for _, value := range side.values {
			before := len(who) + len(what)
			if f.principal != nil {
				who = append(who, f.principal(t, value)...)
			} else {
				what = append(what, f.permission(t, value)...)
			}
			if len(who)+len(what) == before {
				unknown = true
			}
		}
		switch { // validation refuses values that cannot be translated; if there is one nevertheless, the rule must not allow more
		case t.restricting && unknown && !side.not:
			continue // without the field the rule matches more
		case !t.restricting && (unknown && side.not || len(who)+len(what) == 0):
			return false
		}
		add(who, side.not, principals, orPrincipals, notPrincipal)
		add(what, side.not, permissions, orPermissions, notPermission)
	}
	return true
}

// add appends the matcher for alternatives, or for none of them.
func add[M any](alternatives []*M, not bool, to *[]*M, or func([]*M) *M, negate func(*M) *M) {
	if len(alternatives) == 0 {
		return
	}
	m := or(alternatives)
	if not {
		m = negate(m)
	}
	*to = append(*to, m)
}

// translate returns the policies of Envoy for an AuthorizationPolicy, for HTTP and for other connections.
func translate(row *policies.Authorization, trustDomains []string) (http, tcp map[int]*rbacv3.Policy) {
	t := translation{key: row.Object, trustDomains: trustDomains, restricting: row.Spec.GetAction() != security.AuthorizationPolicy_ALLOW}
	http = t.rules(row.Spec)
	t.tcp = true
	return http, t.rules(row.Spec)
}
