package rules

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

func (c *checker) destinationRule(p *document.Path, r *networking.DestinationRule) {
	c.rule(p.Field("host"), syntax.Wildcard(r.Host))
	c.exportTo(p.Field("exportTo"), r.ExportTo, false)
	if r.WorkloadSelector != nil {
		for i, to := range r.ExportTo {
			if to != "." && to != c.namespace {
				c.fail(p.Field("exportTo").At(i), "a rule with a workloadSelector stays in its namespace; write \".\" or remove exportTo")
			}
		}
	}
	c.trafficPolicy(p.Field("trafficPolicy"), r.TrafficPolicy)
	seen := map[string]int{}
	for i, s := range r.Subsets {
		at := p.Field("subsets").At(i)
		if s == nil {
			c.fail(at, "a subset must not be null")
			continue
		}
		c.rule(at.Field("name"), syntax.Name(s.Name))
		if first, dup := seen[s.Name]; dup {
			c.fail(at.Field("name"), "subsets[%d] has the same name; rename one of them", first)
		} else {
			seen[s.Name] = i
		}
		c.trafficPolicy(at.Field("trafficPolicy"), s.TrafficPolicy)
	}
}

func (c *checker) trafficPolicy(p *document.Path, t *networking.TrafficPolicy) {
	if t == nil {
		return
	}
	if t.LoadBalancer == nil && t.ConnectionPool == nil && t.OutlierDetection == nil && t.Tls == nil &&
		len(t.PortLevelSettings) == 0 && t.Tunnel == nil && t.ProxyProtocol == nil && t.RetryBudget == nil {
		c.fail(p, "a policy must set something")
	}
	if t.Tunnel != nil && t.ProxyProtocol != nil {
		c.fail(p.Field("proxyProtocol"), "excludes tunnel; keep one of them")
	}
	c.policyBlocks(p, t)
	if t.Tunnel != nil {
		c.tunnel(p.Field("tunnel"), t.Tunnel)
	}
	seen := map[uint32]int{}
	for i, s := range t.PortLevelSettings {
		at := p.Field("portLevelSettings").At(i)
		if s == nil {
			c.fail(at, "a policy must not be null")
			continue
		}
		if s.Port == nil {
			c.fail(at.Field("port"), "a policy for one port needs its number")
		} else {
			c.port(at.Field("port").Field("number"), s.Port.Number)
			if first, dup := seen[s.Port.Number]; dup {
				c.warn(at.Field("port"), "portLevelSettings[%d] is for the same port and wins; merge them", first)
			} else {
				seen[s.Port.Number] = i
			}
		}
		if s.LoadBalancer == nil && s.ConnectionPool == nil && s.OutlierDetection == nil && s.Tls == nil {
			c.fail(at, "a policy must set something")
		}
		c.policyBlocks(at, s)
	}
}

// policyBlocks checks the settings that a policy and a policy for one port have in common.
func (c *checker) policyBlocks(p *document.Path, t interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}) {
	c.loadBalancer(p.Field("loadBalancer"), t.GetLoadBalancer(), t.GetOutlierDetection() != nil)
	c.connectionPool(p.Field("connectionPool"), t.GetConnectionPool())
	c.outlierDetection(p.Field("outlierDetection"), t.GetOutlierDetection())
	c.clientTLS(p.Field("tls"), t.GetTls())
}

func (c *checker) tunnel(p *document.Path, t *networking.TrafficPolicy_TunnelSettings) {
	if t.Protocol != "" && t.Protocol != "CONNECT" && t.Protocol != "POST" {
		c.fail(p.Field("protocol"), "must be CONNECT or POST, not %s", document.Quote(t.Protocol))
	}
	if !syntax.IsIP(t.TargetHost) {
		c.rule(p.Field("targetHost"), syntax.FQDN(t.TargetHost))
	}
	c.port(p.Field("targetPort"), t.TargetPort)
}

func (c *checker) outlierDetection(p *document.Path, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	if o.ConsecutiveErrors != 0 { //nolint:staticcheck // it is the deprecated field we look for
		c.warn(p.Field("consecutiveErrors"), "is deprecated; use consecutive5xxErrors or consecutiveGatewayErrors")
	}
	if o.ConsecutiveLocalOriginFailures.GetValue() > 0 && !o.SplitExternalLocalOriginErrors {
		c.fail(p.Field("consecutiveLocalOriginFailures"), "has no effect unless splitExternalLocalOriginErrors is true; set it")
	}
}

func (c *checker) connectionPool(p *document.Path, s *networking.ConnectionPoolSettings) {
	if s == nil {
		return
	}
	if s.Tcp == nil && s.Http == nil {
		c.fail(p, "a connection pool must set tcp or http")
	}
	if h := s.Http; h != nil {
		at := p.Field("http")
		if h.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE && h.UseClientProtocol {
			c.fail(at.Field("useClientProtocol"), "contradicts h2UpgradePolicy UPGRADE; keep one of them")
		}
		if k := h.Http2KeepAlive; k != nil {
			if k.Interval == nil {
				c.fail(at.Field("http2KeepAlive").Field("interval"), "is needed: how often a ping is sent")
			}
			if k.Timeout == nil {
				c.fail(at.Field("http2KeepAlive").Field("timeout"), "is needed: how long the answer to a ping may take")
			}
		}
	}
}

func (c *checker) loadBalancer(p *document.Path, lb *networking.LoadBalancerSettings, outlier bool) {
	if lb == nil {
		return
	}
	c.consistentHash(p.Field("consistentHash"), lb.GetConsistentHash())
	if lb.LocalityLbSetting != nil && lb.ZoneAwareLbSetting != nil {
		c.fail(p.Field("zoneAwareLbSetting"), "excludes localityLbSetting; keep one of them")
	}
	c.localityLB(p.Field("localityLbSetting"), lb.LocalityLbSetting)
	c.zoneAwareLB(p.Field("zoneAwareLbSetting"), lb.ZoneAwareLbSetting)
	if !outlier {
		const reason = "has no effect without outlierDetection, which finds out when to fail over"
		if l := lb.LocalityLbSetting; len(l.GetFailover())+len(l.GetFailoverPriority()) > 0 {
			c.warn(p.Field("localityLbSetting").Field("failover"), reason)
		}
		if z := lb.ZoneAwareLbSetting; len(z.GetFailover())+len(z.GetFailoverPriority()) > 0 {
			c.warn(p.Field("zoneAwareLbSetting").Field("failover"), reason)
		}
	}
	if lb.Warmup == nil && lb.WarmupDurationSecs == nil { //nolint:staticcheck // deprecated, and still in use
		return
	}
	if lb.WarmupDurationSecs != nil { //nolint:staticcheck // it is the deprecated field we look for
		c.warn(p.Field("warmupDurationSecs"), "is deprecated; use warmup.duration")
	}
	at := p.Field("warmup")
	if lb.Warmup != nil && lb.Warmup.Duration == nil {
		c.fail(at.Field("duration"), "is needed")
	}
	switch simple := lb.GetSimple(); {
	case lb.GetConsistentHash() != nil, simple == networking.LoadBalancerSettings_RANDOM,
		simple == networking.LoadBalancerSettings_PASSTHROUGH:
		c.warn(at, "has an effect on ROUND_ROBIN and LEAST_REQUEST only")
	}
}

const (
	maxMaglev = 5000011 // first size that Envoy refuses
	maxRing   = 8 << 20 // last size that Envoy takes
)

func (c *checker) consistentHash(p *document.Path, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if h == nil {
		return
	}
	switch key := h.HashKey.(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		at := p.Field("httpCookie")
		c.rule(at.Field("name"), checkHashed("a cookie", key.HttpCookie.GetName()))
		seen := map[string]bool{}
		for i, a := range key.HttpCookie.GetAttributes() {
			name := at.Field("attributes").At(i).Field("name")
			if c.rule(name, checkHashed("an attribute", a.GetName())) && seen[a.GetName()] {
				c.fail(name, "%s is named twice", document.Quote(a.GetName()))
			}
			seen[a.GetName()] = true
			c.cookieAttribute(at.Field("attributes").At(i).Field("value"), a)
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.rule(p.Field("httpHeaderName"), checkHashed("a header", key.HttpHeaderName))
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		c.rule(p.Field("httpQueryParameterName"), checkHashed("a query parameter", key.HttpQueryParameterName))
	case nil:
		c.warn(p, "says nothing of what to hash, so requests go anywhere; set httpHeaderName, httpCookie, httpQueryParameterName or useSourceIp")
	}
	if h.MinimumRingSize != 0 { //nolint:staticcheck // it is the deprecated field we look for
		c.warn(p.Field("minimumRingSize"), "is deprecated; use ringHash.minimumRingSize")
		if h.GetRingHash() != nil || h.GetMaglev() != nil {
			c.fail(p.Field("minimumRingSize"), "excludes ringHash and maglev; set ringHash.minimumRingSize instead")
		}
	}
	if size := h.GetRingHash().GetMinimumRingSize(); size > maxRing {
		c.warn(p.Field("ringHash").Field("minimumRingSize"), "%d is more than Envoy takes; %d is used", size, maxRing)
	}
	if m := h.GetMaglev(); m != nil {
		at := p.Field("maglev").Field("tableSize")
		switch size := m.TableSize; {
		case size == 0:
			c.fail(at, "is needed: a prime number below %d, such as 65537", maxMaglev)
		case size >= maxMaglev:
			c.fail(at, "must be less than %d, not %d", maxMaglev, size)
		case !isPrime(size):
			c.fail(at, "must be a prime number, which %d is not", size)
		}
	}
}

// checkHashed checks the name of a header, cookie or parameter for hashing. If Envoy refuses it, all routes of the port are lost.
func checkHashed(what, name string) string {
	if name == "" {
		return what + " needs a name"
	}
	if strings.ContainsAny(name, "\x00\r\n") {
		return document.Quote(name) + " has control characters; remove them"
	}
	return ""
}

func isPrime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

func (c *checker) localityLB(p *document.Path, l *networking.LocalityLoadBalancerSetting) {
	if l == nil {
		return
	}
	switch {
	case len(l.Distribute) > 0 && len(l.Failover) > 0:
		c.fail(p.Field("distribute"), "excludes failover; keep one of them")
	case len(l.Distribute) > 0 && len(l.FailoverPriority) > 0:
		c.warn(p.Field("failoverPriority"), "has no effect beside distribute; keep one of them")
	}
	var from []string
	for i, d := range l.Distribute {
		at := p.Field("distribute").At(i)
		if d == nil {
			c.fail(at, "must not be null")
			continue
		}
		if c.rule(at.Field("from"), checkLocality(d.From)) {
			from = c.distinctLocality(at.Field("from"), d.From, from)
		}
		c.shares(at.Field("to"), d.To)
	}
	for i, f := range l.Failover {
		c.failover(p.Field("failover").At(i), f.GetFrom(), f.GetTo())
	}
	c.failoverPriority(p.Field("failoverPriority"), l.FailoverPriority, len(l.Failover) > 0)
}

func (c *checker) shares(p *document.Path, to map[string]uint32) {
	total := uint64(0)
	var known []string
	for _, locality := range sortedKeys(to) {
		at := p.Key(locality)
		if c.rule(at, checkLocality(locality)) {
			known = c.distinctLocality(at, locality, known)
		}
		if to[locality] == 0 {
			c.fail(p, "the share of %s is 0; leave the locality out", document.Quote(locality))
			return
		}
		total += uint64(to[locality])
	}
	if total != 100 {
		c.fail(p, "the shares add up to %d, not to 100", total)
	}
}

// distinctLocality reports a locality that overlaps one of those before it, and adds it to them.
func (c *checker) distinctLocality(p *document.Path, locality string, before []string) []string {
	for _, b := range before {
		if localitiesOverlap(locality, b) {
			c.fail(p, "%s and %s overlap", document.Quote(locality), document.Quote(b))
			break
		}
	}
	return append(before, locality)
}

func localitiesOverlap(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] == "*" || bs[i] == "*" {
			return true
		}
		if as[i] != bs[i] {
			return false
		}
	}
	return true
}

// checkLocality checks "region/zone/subzone". The tail may be left out or end with "*".
func checkLocality(s string) string {
	if i := strings.IndexByte(s, '*'); i >= 0 && i < len(s)-1 {
		return fmt.Sprintf("%s is not a locality: one * is allowed at its end", document.Quote(s))
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" {
			return fmt.Sprintf("%s is not a locality like region/zone/subzone or region/*: no part is empty", document.Quote(s))
		}
	}
	return ""
}

func (c *checker) failover(p *document.Path, from, to string) {
	if from == to {
		c.fail(p, "%s cannot fail over to itself", document.Quote(from))
		return
	}
	for _, r := range []struct{ field, region string }{{"from", from}, {"to", to}} {
		if r.region == "" || strings.ContainsAny(r.region, "*/") {
			c.fail(p.Field(r.field), "%s is not a region: failover names regions, without zones and wildcards", document.Quote(r.region))
		}
	}
}

// failoverPriority checks the labels of a failover priority, which may have a value. Where failover between regions is decided
// otherwise, the labels of localities must not be among them.
func (c *checker) failoverPriority(p *document.Path, labels []string, regions bool) {
	seen := map[string]bool{}
	for i, l := range labels {
		key, text, _ := strings.Cut(l, "=")
		reason := syntax.WorkloadLabel(key, text)
		switch {
		case regions && slices.Contains([]string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}, l):
			c.fail(p.At(i), "the label %s names a locality, which failover decides already; remove it", l)
		case reason != "":
			c.warn(p.At(i), "no workload has such a label: %s", reason)
		case seen[key]:
			c.warn(p.At(i), "the label %s is named twice", document.Quote(key))
		}
		seen[key] = true
	}
}

func (c *checker) zoneAwareLB(p *document.Path, z *networking.ZoneAwareLoadBalancerSetting) {
	if z == nil {
		return
	}
	for i, f := range z.Failover {
		c.failover(p.Field("failover").At(i), f.GetFrom(), f.GetTo())
	}
	c.failoverPriority(p.Field("failoverPriority"), z.FailoverPriority, true)
	if z.MinClusterSize != nil && z.MinClusterSize.Value == 0 {
		c.fail(p.Field("minClusterSize"), "must be 1 at least")
	}
}

func (c *checker) clientTLS(p *document.Path, t *networking.ClientTLSSettings) {
	if t == nil {
		return
	}
	c.idleTLS(p, t)
	c.credential(p.Field("credentialName"), t.CredentialName)
	if t.Mode == networking.ClientTLSSettings_MUTUAL && strings.HasPrefix(t.CredentialName, configMapScheme) {
		c.warn(p.Field("credentialName"), noPair+", or use mode SIMPLE")
	}
	c.serverName(p.Field("sni"), t.Sni)
	simple, mutual := t.Mode == networking.ClientTLSSettings_SIMPLE, t.Mode == networking.ClientTLSSettings_MUTUAL
	if !simple && !mutual {
		return
	}
	if t.InsecureSkipVerify.GetValue() {
		c.unverified(p, t, simple)
	}
	if t.CredentialName != "" {
		if t.ClientCertificate != "" || t.PrivateKey != "" || t.CaCertificates != "" || t.CaCrl != "" {
			c.fail(p.Field("credentialName"), "excludes certificates in files; keep one of the two")
		}
		return
	}
	if mutual {
		if t.ClientCertificate == "" {
			c.fail(p.Field("clientCertificate"), "mutual TLS needs a certificate, or credentialName")
		}
		if t.PrivateKey == "" {
			c.fail(p.Field("privateKey"), "mutual TLS needs a private key, or credentialName")
		}
		c.secretFile(p.Field("clientCertificate"), t.ClientCertificate)
		c.secretFile(p.Field("privateKey"), t.PrivateKey)
	}
}

// unverified refuses settings for verification beside insecureSkipVerify.
func (c *checker) unverified(p *document.Path, t *networking.ClientTLSSettings, simple bool) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"caCertificates", t.CaCertificates != ""}, {"caCrl", t.CaCrl != ""}, {"subjectAltNames", len(t.SubjectAltNames) > 0},
		{"credentialName", simple && t.CredentialName != ""},
	} {
		if f.set {
			c.fail(p.Field("insecureSkipVerify"), "excludes %s: a server that is not verified needs no CA and no names; keep one of the two", f.name)
		}
	}
}

// idleTLS warns of TLS settings that have no effect in their mode.
func (c *checker) idleTLS(p *document.Path, t *networking.ClientTLSSettings) {
	type setting struct {
		name string
		set  bool
	}
	own := []setting{{"clientCertificate", t.ClientCertificate != ""}, {"privateKey", t.PrivateKey != ""}}
	roots := []setting{{"caCertificates", t.CaCertificates != ""}, {"caCrl", t.CaCrl != ""}}
	credential := setting{"credentialName", t.CredentialName != ""}
	names, verify := setting{"subjectAltNames", len(t.SubjectAltNames) > 0}, setting{"insecureSkipVerify", t.InsecureSkipVerify.GetValue()}
	warn := func(reason string, list ...setting) {
		for _, s := range list {
			if s.set {
				c.warn(p.Field(s.name), "%s", reason)
			}
		}
	}
	switch t.Mode {
	case networking.ClientTLSSettings_DISABLE:
		const reason = "does nothing: mode DISABLE sends plain text; choose another mode, or remove it"
		warn(reason, own...)
		warn(reason, roots...)
		warn(reason, credential, names, verify, setting{"sni", t.Sni != ""})
	case networking.ClientTLSSettings_SIMPLE:
		warn("does nothing: mode SIMPLE shows the server no certificate; use mode MUTUAL, or remove it", own...)
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		const reason = "does nothing: mode ISTIO_MUTUAL uses the certificates of the mesh; use mode MUTUAL, or remove it"
		warn(reason, own...)
		warn(reason, roots...)
		warn(reason, credential)
		warn("does nothing: mode ISTIO_MUTUAL always verifies the server; use mode SIMPLE or MUTUAL, or remove it", verify)
	}
}

// secretFile warns of a path with "~", because the name of a secret consists of two paths with "~" between them.
func (c *checker) secretFile(p *document.Path, path string) {
	if strings.Contains(path, "~") {
		c.warn(p, "has a ~, which sidecars take for the end of the certificate's path: connections will fail; rename the file")
	}
}

// configMapScheme begins the name of a ConfigMap with the certificates of authorities. noPair is why it cannot replace a Secret.
const (
	configMapScheme = "configmap://"
	noPair          = "a ConfigMap has no certificate with its key, so connections fail; name a Secret"
)

// credential checks the reference to a CA in a ConfigMap: it must be one of the own namespace.
func (c *checker) credential(p *document.Path, name string) {
	rest, ok := strings.CutPrefix(name, configMapScheme)
	if !ok {
		return
	}
	namespace, configMap, ok := strings.Cut(rest, "/")
	switch {
	case !ok || configMap == "" || namespace == "" || strings.Contains(configMap, "/"):
		c.fail(p, "%s does not have the form configmap://namespace/name", document.Quote(name))
	case namespace != c.namespace:
		c.fail(p, "%s is in another namespace; a rule takes CAs of its own namespace only", document.Quote(name))
	}
}
