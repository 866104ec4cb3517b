package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
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
		c.fail(at, "dry runs exist for AuthorizationPolicies only; remove the annotation")
	case policy.Action != security.AuthorizationPolicy_ALLOW && policy.Action != security.AuthorizationPolicy_DENY:
		c.fail(at, "only ALLOW and DENY can be tried out, not %s", policy.Action)
	default:
		if _, err := strconv.ParseBool(*value); err != nil {
			c.fail(at, "must be true or false, not %s", document.Quote(*value))
		}
	}
}

const maxRules = 512

func (c *checker) authorizationPolicy(p *document.Path, s *security.AuthorizationPolicy) {
	c.attachment(p, s.Selector, s.TargetRef, s.TargetRefs)
	custom := s.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && s.GetProvider().GetName() == "":
		c.fail(p.Field("provider"), "CUSTOM needs the name of an extension provider of the mesh configuration")
	case !custom && s.GetProvider() != nil:
		c.fail(p.Field("provider"), "is for the action CUSTOM only")
	}
	rules := p.Field("rules")
	if len(s.Rules) == 0 && (custom || s.Action == security.AuthorizationPolicy_DENY) {
		c.fail(rules, "%s without rules never matches; write an empty rule, {}, to match everything", s.Action)
	}
	c.atMost(rules, len(s.Rules), maxRules)
	for i, rule := range s.Rules {
		if rule == nil {
			c.fail(rules.At(i), "a rule must not be null; write {} to match everything")
			continue
		}
		c.authorizationRule(rules.At(i), rule, custom)
	}
}

// atMost checks the number of entries of a list.
func (c *checker) atMost(p *document.Path, n, limit int) {
	if n > limit {
		c.fail(p, "has %d entries, the limit is %d; split the object", n, limit)
	}
}

// attachment checks what a policy is for.
func (c *checker) attachment(p *document.Path, selector *typev1beta1.WorkloadSelector, one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) {
	ways := 0
	for _, used := range []bool{selector != nil, one != nil, len(all) > 0} {
		if used {
			ways++
		}
	}
	switch {
	case ways > 1 && selector != nil:
		c.fail(p.Field("selector"), "excludes targetRef and targetRefs; keep one of them")
	case ways > 1:
		c.fail(p.Field("targetRefs"), "excludes targetRef; keep one of them")
	}
	if selector != nil && len(selector.MatchLabels) == 0 {
		c.warn(p.Field("selector"), "has no labels, so it selects every workload; remove it if that is meant")
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
		c.fail(p.Field("kind"), "a target needs a kind")
		return
	}
	if t.Name == "" {
		c.fail(p.Field("name"), "a target needs a name")
	} else if len(t.Name) > 253 {
		c.fail(p.Field("name"), "has %d characters, the limit is 253", len(t.Name))
	}
	if t.Namespace != "" {
		c.fail(p.Field("namespace"), "a target must be in the namespace of the policy; remove the field")
	}
	kinds := []string{"/Service", "core/Service", "networking.istio.io/ServiceEntry", "gateway.networking.k8s.io/Gateway", "gateway.networking.k8s.io/GatewayClass"}
	if !slices.Contains(kinds, t.Group+"/"+t.Kind) {
		c.fail(p.Field("kind"), "%s of group %s is no target; targets are a Service, a ServiceEntry of networking.istio.io, and a Gateway or GatewayClass of gateway.networking.k8s.io",
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
			c.fail(at, "an entry needs a source")
			continue
		}
		c.source(at, from.Source, custom)
	}
	for i, to := range rule.To {
		at := p.Field("to").At(i).Field("operation")
		if to.GetOperation() == nil {
			c.fail(at, "an entry needs an operation")
			continue
		}
		o := to.Operation
		c.texts(at, "an operation", []listField{
			{"hosts", o.Hosts, nil}, {"notHosts", o.NotHosts, nil}, {"ports", o.Ports, checkPortText}, {"notPorts", o.NotPorts, checkPortText},
			{"methods", o.Methods, nil}, {"notMethods", o.NotMethods, nil}, {"paths", o.Paths, CheckPathTemplate}, {"notPaths", o.NotPaths, CheckPathTemplate},
		})
	}
	for i, when := range rule.When {
		c.condition(p.Field("when").At(i), when, custom)
	}
}

// texts checks lists, of which one must have an entry.
func (c *checker) texts(p *document.Path, what string, fields []listField) {
	count := 0
	for _, f := range fields {
		count += len(f.texts)
		for i, text := range f.texts {
			at := p.Field(f.name).At(i)
			if text == "" {
				c.fail(at, "a value must not be empty; write * for any value")
			} else if f.check != nil {
				c.rule(at, f.check(text))
			}
		}
	}
	if count == 0 {
		c.fail(p, "%s must name something; remove it if it is to be anything", what)
	}
}

func (c *checker) source(p *document.Path, s *security.Source, custom bool) {
	fields := []listField{
		{"principals", s.Principals, nil}, {"notPrincipals", s.NotPrincipals, nil},
		{"requestPrincipals", s.RequestPrincipals, nil}, {"notRequestPrincipals", s.NotRequestPrincipals, nil},
		{"namespaces", s.Namespaces, nil}, {"notNamespaces", s.NotNamespaces, nil},
		{"serviceAccounts", s.ServiceAccounts, checkAccount}, {"notServiceAccounts", s.NotServiceAccounts, checkAccount},
		{"trustDomains", s.TrustDomains, checkTrustDomainPattern}, {"notTrustDomains", s.NotTrustDomains, checkTrustDomainPattern},
		{"ipBlocks", s.IpBlocks, checkSubnet}, {"notIpBlocks", s.NotIpBlocks, checkSubnet},
		{"remoteIpBlocks", s.RemoteIpBlocks, checkSubnet}, {"notRemoteIpBlocks", s.NotRemoteIpBlocks, checkSubnet},
	}
	c.texts(p, "a source", fields)
	for _, f := range fields {
		if custom && len(f.texts) > 0 && f.name != "ipBlocks" && f.name != "notIpBlocks" && f.name != "remoteIpBlocks" && f.name != "notRemoteIpBlocks" {
			c.fail(p.Field(f.name), "is not known when the action CUSTOM decides whom to ask: that comes before identities are checked; leave the decision to the provider")
		}
	}
	accounts := cmp.Or(len(s.ServiceAccounts), len(s.NotServiceAccounts)) > 0
	if accounts && len(s.Principals)+len(s.NotPrincipals)+len(s.Namespaces)+len(s.NotNamespaces) > 0 {
		c.fail(p.Field("serviceAccounts"), "exclude principals and namespaces; write two sources, or namespace/account")
	}
	c.atMost(p.Field("serviceAccounts"), len(s.ServiceAccounts), 16)
	c.atMost(p.Field("notServiceAccounts"), len(s.NotServiceAccounts), 16)
}

func checkPortText(s string) string {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Sprintf("%s is not a port number", document.Quote(s))
	}
	return checkPort(uint32(n))
}

// checkAccount checks "account" or "namespace/account".
func checkAccount(s string) string {
	namespace, account, both := strings.Cut(s, "/")
	if !both {
		namespace, account = "-", s
	}
	switch {
	case len(s) > 320:
		return fmt.Sprintf("has %d characters, the limit is 320", len(s))
	case strings.Contains(account, "/") || namespace == "" || account == "":
		return fmt.Sprintf("%s is neither an account nor namespace/account", document.Quote(s))
	case strings.Contains(s, "*"):
		return fmt.Sprintf("%s: service accounts are named exactly; use principals for wildcards", document.Quote(s))
	}
	return ""
}

func checkTrustDomainPattern(s string) string {
	inner := strings.TrimSuffix(s, "*")
	if inner == s {
		inner = strings.TrimPrefix(s, "*")
	}
	if strings.Contains(inner, "*") {
		return fmt.Sprintf("%s: a wildcard stands at the beginning or at the end, once", document.Quote(s))
	}
	if strings.Contains(inner, "/") {
		return fmt.Sprintf("%s: a trust domain has no slash", document.Quote(s))
	}
	return ""
}

func (c *checker) condition(p *document.Path, when *security.Condition, custom bool) {
	key := p.Field("key")
	if when.GetKey() == "" {
		c.fail(key, "a condition needs a key")
		return
	}
	check, known := conditionCheck(when.Key)
	if !known {
		c.fail(key, "%s is no attribute; attributes are %s", document.Quote(when.Key), strings.Join(conditionKeys(), ", "))
		return
	}
	if custom && (strings.HasPrefix(when.Key, "request.auth.") || slices.Contains([]string{"source.principal", "source.namespace", "source.serviceAccount", "source.trustDomain"}, when.Key)) {
		c.fail(key, "is not known when the action CUSTOM decides whom to ask: that comes before identities are checked; leave the decision to the provider")
	}
	c.texts(p, "a condition", []listField{{"values", when.Values, check}, {"notValues", when.NotValues, check}})
}

// conditionKeys returns the attributes of conditions.
func conditionKeys() []string {
	return []string{
		"request.headers[NAME]", "source.ip", "remote.ip", "source.namespace", "source.serviceAccount", "source.principal", "source.trustDomain",
		"request.auth.principal", "request.auth.audiences", "request.auth.presenter", "request.auth.claims[NAME]", "destination.ip", "destination.port",
		"connection.sni", "experimental.envoy.filters.NAME[KEY]",
	}
}

// conditionCheck returns the check of the values of an attribute; false if there is no such attribute.
func conditionCheck(key string) (check func(string) string, known bool) {
	switch key {
	case "source.ip", "remote.ip", "destination.ip":
		return checkSubnet, true
	case "destination.port":
		return checkPortText, true
	case "source.serviceAccount":
		return checkAccount, true
	case "source.trustDomain":
		return checkTrustDomainPattern, true
	case "source.namespace", "source.principal", "request.auth.principal", "request.auth.audiences", "request.auth.presenter", "connection.sni":
		return nil, true
	}
	if rest, ok := strings.CutPrefix(key, "request.headers"); ok {
		names, ok := Brackets(rest)
		return nil, ok && len(names) == 1 && checkHeaderName(names[0]) == ""
	}
	if rest, ok := strings.CutPrefix(key, "request.auth.claims"); ok {
		_, ok := Brackets(rest)
		return nil, ok
	}
	if strings.HasPrefix(key, "experimental.envoy.filters.") {
		at := strings.IndexByte(key, '[')
		if at < 0 {
			return nil, false
		}
		names, ok := Brackets(key[at:])
		return nil, ok && len(names) == 1
	}
	return nil, false
}

// Brackets splits "[a][b]" into a and b. ok is false if the text has another form, or a name is empty.
func Brackets(s string) (names []string, ok bool) {
	for s != "" {
		if s[0] != '[' {
			return nil, false
		}
		end := strings.Index(s, "]")
		if end <= 1 {
			return nil, false
		}
		names, s = append(names, s[1:end]), s[end+1:]
	}
	return names, len(names) > 0
}

// CheckPathTemplate checks a path of an operation: an exact path, one with * at its beginning or end, or a template with {*} for one
// segment and {**} for any number of them.
func CheckPathTemplate(path string) string {
	if !strings.ContainsAny(path, "{}") {
		return ""
	}
	if strings.Contains(strings.NewReplacer("{*}", "", "{**}", "").Replace(path), "*") {
		return fmt.Sprintf("%s mixes a template with the wildcard *; write {*} or {**}", document.Quote(path))
	}
	many := false
	for i, segment := range strings.Split(path, "/") {
		switch {
		case i == 0 && segment != "":
			return fmt.Sprintf("%s: a template begins with a slash", document.Quote(path))
		case segment == "{*}" || segment == "{**}":
			if many {
				return fmt.Sprintf("%s: no {*} or {**} may follow {**}", document.Quote(path))
			}
			many = segment == "{**}"
		case strings.ContainsAny(segment, "{}"):
			return fmt.Sprintf("%s: in a template, {*} and {**} are whole segments, and there are no other braces", document.Quote(path))
		}
	}
	return ""
}
