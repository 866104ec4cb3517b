package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// AuthorizationPolicy checks an AuthorizationPolicy.
func AuthorizationPolicy(s *security.AuthorizationPolicy, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) { c.authorizationPolicy(at, s) })
}

// dryRun checks the annotation for dry runs.
func (c *checker) dryRun(spec proto.Message, value *string) {
	if value == nil {
		return
	}
	at := (*document.Path)(nil).Field("metadata").Field("annotations").Key("istio.io/dry-run")
	policy, ok := spec.(*security.AuthorizationPolicy)
	switch {
	case !ok:
		c.Fail(at, "dry runs exist for AuthorizationPolicies only; remove the annotation")
	case policy.Action != security.AuthorizationPolicy_ALLOW && policy.Action != security.AuthorizationPolicy_DENY:
		c.Fail(at, "only ALLOW and DENY can be tried out, not %s", policy.Action)
	default:
		if _, err := strconv.ParseBool(*value); err != nil {
			c.Fail(at, "must be true or false, not %s", document.Quote(*value))
		}
	}
}

const maxRules = 512

func (c *checker) authorizationPolicy(p *document.Path, s *security.AuthorizationPolicy) {
	c.attachment(p, s.Selector, s.TargetRef, s.TargetRefs)
	custom := s.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && s.GetProvider().GetName() == "":
		c.Fail(p.Field("provider"), "CUSTOM needs the name of an extension provider of the mesh configuration")
	case !custom && s.GetProvider() != nil:
		c.Fail(p.Field("provider"), "is for the action CUSTOM only")
	}
	rules := p.Field("rules")
	if len(s.Rules) == 0 && (custom || s.Action == security.AuthorizationPolicy_DENY) {
		c.Fail(rules, "%s without rules never matches; write an empty rule, {}, to match everything", s.Action)
	}
	c.atMost(rules, len(s.Rules), maxRules)
	for i, rule := range s.Rules {
		if rule == nil {
			c.Fail(rules.At(i), "a rule must not be null; write {} to match everything")
			continue
		}
		c.authorizationRule(rules.At(i), rule, custom)
		if s.Action == security.AuthorizationPolicy_DENY && deniesTCP(rule) {
			c.Warn(rules.At(i), "names nothing that a connection has, so it denies every connection that is not HTTP, too; add ports, or write a rule for them")
		}
	}
}

// deniesTCP reports whether a rule of a denying policy matches HTTP requests only: then it denies all connections that are not HTTP.
func deniesTCP(rule *security.Rule) bool {
	for _, to := range rule.To {
		if o := to.GetOperation(); len(o.GetPorts())+len(o.GetNotPorts()) == 0 {
			return true
		}
	}
	if len(rule.To) > 0 {
		return false
	}
	for _, from := range rule.From {
		s := from.GetSource()
		if len(s.GetPrincipals())+len(s.GetNotPrincipals())+len(s.GetNamespaces())+len(s.GetNotNamespaces())+len(s.GetIpBlocks())+
			len(s.GetNotIpBlocks())+len(s.GetRemoteIpBlocks())+len(s.GetNotRemoteIpBlocks())+len(s.GetServiceAccounts())+
			len(s.GetNotServiceAccounts())+len(s.GetTrustDomains())+len(s.GetNotTrustDomains()) == 0 {
			return true
		}
	}
	return false
}

// atMost checks the number of entries of a list.
func (c *checker) atMost(p *document.Path, n, limit int) {
	if n > limit {
		c.Fail(p, "has %d entries, the limit is %d; split the object", n, limit)
	}
}

// attachment checks the selector and the targets of a policy.
func (c *checker) attachment(p *document.Path, selector *typev1beta1.WorkloadSelector, one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) {
	ways := 0
	for _, used := range []bool{selector != nil, one != nil, len(all) > 0} {
		if used {
			ways++
		}
	}
	switch {
	case ways > 1 && selector != nil:
		c.Fail(p.Field("selector"), "excludes targetRef and targetRefs; keep one of them")
	case ways > 1:
		c.Fail(p.Field("targetRefs"), "excludes targetRef; keep one of them")
	}
	if one != nil {
		c.target(p.Field("targetRef"), one)
	}
	c.atMost(p.Field("targetRefs"), len(all), 16)
	for i, target := range all {
		c.target(p.Field("targetRefs").At(i), target)
	}
}

func (c *checker) target(p *document.Path, t *typev1beta1.PolicyTargetReference) {
	if t.GetKind() == "" {
		c.Fail(p.Field("kind"), "a target needs a kind")
		return
	}
	if t.Name == "" {
		c.Fail(p.Field("name"), "a target needs a name")
	}
	if t.Namespace != "" {
		c.Fail(p.Field("namespace"), "a target must be in the namespace of the policy; remove the field")
	}
	kinds := []string{"/Service", "core/Service", "networking.istio.io/ServiceEntry", "gateway.networking.k8s.io/Gateway", "gateway.networking.k8s.io/GatewayClass"}
	if !slices.Contains(kinds, t.Group+"/"+t.Kind) {
		c.Fail(p.Field("kind"), "%s of group %s is no target; targets are a Service, a ServiceEntry of networking.istio.io, and a Gateway or GatewayClass of gateway.networking.k8s.io",
			document.Quote(t.Kind), document.Quote(t.Group))
	}
}

// field is a list of texts in a rule, with the check of each of its entries.
type listField struct {
	name  string
	texts []string
	check func(string) string
}

func (c *checker) authorizationRule(p *document.Path, rule *security.Rule, custom bool) {
	c.atMost(p.Field("from"), len(rule.From), maxRules)
	for i, from := range rule.From {
		at := p.Field("from").At(i).Field("source")
		if from.GetSource() == nil {
			c.Fail(at, "an entry needs a source")
			continue
		}
		c.source(at, from.Source, custom)
	}
	c.atMost(p.Field("to"), len(rule.To), maxRules)
	for i, to := range rule.To {
		at := p.Field("to").At(i).Field("operation")
		if to.GetOperation() == nil {
			c.Fail(at, "an entry needs an operation")
			continue
		}
		o := to.Operation
		c.patterns(at.Field("hosts"), o.Hosts)
		c.patterns(at.Field("notHosts"), o.NotHosts)
		c.texts(at, "an operation", []listField{
			{"hosts", o.Hosts, nil}, {"notHosts", o.NotHosts, nil}, {"ports", o.Ports, syntax.PortText}, {"notPorts", o.NotPorts, syntax.PortText},
			{"methods", o.Methods, nil}, {"notMethods", o.NotMethods, nil}, {"paths", o.Paths, syntax.PathTemplate}, {"notPaths", o.NotPaths, syntax.PathTemplate},
		})
	}
	for i, when := range rule.When {
		c.condition(p.Field("when").At(i), when, custom)
	}
}

// texts checks lists. At least one of them must have an entry.
func (c *checker) texts(p *document.Path, what string, fields []listField) {
	count := 0
	for _, f := range fields {
		count += len(f.texts)
		for i, text := range f.texts {
			at := p.Field(f.name).At(i)
			if text == "" {
				c.Fail(at, "a value must not be empty; write * for any value")
			} else if f.check != nil {
				c.Rule(at, f.check(text))
			}
		}
	}
	if count == 0 {
		c.Fail(p, "%s must name something; remove it if it is to be anything", what)
	}
}

func (c *checker) source(p *document.Path, s *security.Source, custom bool) {
	fields := []listField{
		{"principals", s.Principals, nil}, {"notPrincipals", s.NotPrincipals, nil},
		{"requestPrincipals", s.RequestPrincipals, nil}, {"notRequestPrincipals", s.NotRequestPrincipals, nil},
		{"namespaces", s.Namespaces, nil}, {"notNamespaces", s.NotNamespaces, nil},
		{"serviceAccounts", s.ServiceAccounts, syntax.Account}, {"notServiceAccounts", s.NotServiceAccounts, syntax.Account},
		{"trustDomains", s.TrustDomains, syntax.TrustDomains}, {"notTrustDomains", s.NotTrustDomains, syntax.TrustDomains},
		{"ipBlocks", s.IpBlocks, syntax.Subnet}, {"notIpBlocks", s.NotIpBlocks, syntax.Subnet},
		{"remoteIpBlocks", s.RemoteIpBlocks, syntax.Subnet}, {"notRemoteIpBlocks", s.NotRemoteIpBlocks, syntax.Subnet},
	}
	c.texts(p, "a source", fields)
	c.patterns(p.Field("namespaces"), s.Namespaces)
	c.patterns(p.Field("notNamespaces"), s.NotNamespaces)
	for _, f := range fields {
		if custom && len(f.texts) > 0 && f.name != "ipBlocks" && f.name != "notIpBlocks" && f.name != "remoteIpBlocks" && f.name != "notRemoteIpBlocks" {
			c.Fail(p.Field(f.name), "is not known when the action CUSTOM decides whom to ask: that comes before identities are checked; leave the decision to the provider")
		}
	}
	accounts := cmp.Or(len(s.ServiceAccounts), len(s.NotServiceAccounts)) > 0
	if accounts && len(s.Principals)+len(s.NotPrincipals)+len(s.Namespaces)+len(s.NotNamespaces) > 0 {
		c.Fail(p.Field("serviceAccounts"), "exclude principals and namespaces; write two sources, or namespace/account")
	}
	c.atMost(p.Field("serviceAccounts"), len(s.ServiceAccounts), 16)
	c.atMost(p.Field("notServiceAccounts"), len(s.NotServiceAccounts), 16)
}

func (c *checker) condition(p *document.Path, when *security.Condition, custom bool) {
	key := p.Field("key")
	if when.GetKey() == "" {
		c.Fail(key, "a condition needs a key")
		return
	}
	check, known := syntax.Attribute(when.Key)
	if !known {
		c.Fail(key, "%s is no attribute; attributes are %s", document.Quote(when.Key), strings.Join(syntax.Attributes(), ", "))
		return
	}
	if custom && (strings.HasPrefix(when.Key, "request.auth.") || slices.Contains([]string{"source.principal", "source.namespace", "source.serviceAccount", "source.trustDomain"}, when.Key)) {
		c.Fail(key, "is not known when the action CUSTOM decides whom to ask: that comes before identities are checked; leave the decision to the provider")
	}
	c.texts(p, "a condition", []listField{{"values", when.Values, check}, {"notValues", when.NotValues, check}})
}
