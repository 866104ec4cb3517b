// Package traffic has the rules of DestinationRules, and of the parts of a traffic policy that Sidecars and the mesh configuration have as well.
package traffic

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// DestinationRule checks a DestinationRule.
func DestinationRule(c *check.Checker, p *document.Path, r *networking.DestinationRule) {
	c.Rule(p.Field("host"), syntax.Wildcard(r.Host))
	c.ExportTo(p.Field("exportTo"), r.ExportTo, false)
	if r.WorkloadSelector != nil {
		for i, to := range r.ExportTo {
			if to != "." && to != c.Namespace {
				c.Fail(p.Field("exportTo").At(i), "a rule with a workloadSelector stays in its namespace; write \".\" or remove exportTo")
			}
		}
	}
	trafficPolicy(c, p.Field("trafficPolicy"), r.TrafficPolicy)
	seen := map[string]int{}
	for i, s := range r.Subsets {
		at := p.Field("subsets").At(i)
		if s == nil {
			c.Fail(at, "a subset must not be null")
			continue
		}
		c.Rule(at.Field("name"), syntax.Name(s.Name))
		if first, dup := seen[s.Name]; dup {
			c.Fail(at.Field("name"), "subsets[%d] has the same name; rename one of them", first)
		} else {
			seen[s.Name] = i
		}
		trafficPolicy(c, at.Field("trafficPolicy"), s.TrafficPolicy)
	}
}

func trafficPolicy(c *check.Checker, p *document.Path, t *networking.TrafficPolicy) {
	if t == nil {
		return
	}
	if t.LoadBalancer == nil && t.ConnectionPool == nil && t.OutlierDetection == nil && t.Tls == nil &&
		len(t.PortLevelSettings) == 0 && t.Tunnel == nil && t.ProxyProtocol == nil && t.RetryBudget == nil {
		c.Fail(p, "a policy must set something")
	}
	if t.Tunnel != nil && t.ProxyProtocol != nil {
		c.Fail(p.Field("proxyProtocol"), "excludes tunnel; keep one of them")
	}
	policyBlocks(c, p, t)
	if t.Tunnel != nil {
		tunnel(c, p.Field("tunnel"), t.Tunnel)
	}
	seen := map[uint32]int{}
	for i, s := range t.PortLevelSettings {
		at := p.Field("portLevelSettings").At(i)
		if s == nil {
			c.Fail(at, "a policy must not be null")
			continue
		}
		if s.Port == nil {
			c.Fail(at.Field("port"), "a policy for one port needs its number")
		} else {
			c.Port(at.Field("port").Field("number"), s.Port.Number)
			if first, dup := seen[s.Port.Number]; dup {
				c.Warn(at.Field("port"), "portLevelSettings[%d] is for the same port and wins; merge them", first)
			} else {
				seen[s.Port.Number] = i
			}
		}
		if s.LoadBalancer == nil && s.ConnectionPool == nil && s.OutlierDetection == nil && s.Tls == nil {
			c.Fail(at, "a policy must set something")
		}
		policyBlocks(c, at, s)
	}
}

// policyBlocks checks the settings that a policy and a policy for one port have in common.
func policyBlocks(c *check.Checker, p *document.Path, t interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}) {
	loadBalancer(c, p.Field("loadBalancer"), t.GetLoadBalancer(), t.GetOutlierDetection() != nil)
	ConnectionPool(c, p.Field("connectionPool"), t.GetConnectionPool())
	OutlierDetection(c, p.Field("outlierDetection"), t.GetOutlierDetection())
	ClientTLS(c, p.Field("tls"), t.GetTls())
}

func tunnel(c *check.Checker, p *document.Path, t *networking.TrafficPolicy_TunnelSettings) {
	if t.Protocol != "" && t.Protocol != "CONNECT" && t.Protocol != "POST" {
		c.Fail(p.Field("protocol"), "must be CONNECT or POST, not %s", document.Quote(t.Protocol))
	}
	if !syntax.IsIP(t.TargetHost) {
		c.Rule(p.Field("targetHost"), syntax.FQDN(t.TargetHost))
	}
	c.Port(p.Field("targetPort"), t.TargetPort)
}

// OutlierDetection checks when endpoints are ejected.
func OutlierDetection(c *check.Checker, p *document.Path, o *networking.OutlierDetection) {
	if o == nil {
		return
	}
	if o.ConsecutiveErrors != 0 { //nolint:staticcheck // it is the deprecated field we look for
		c.Warn(p.Field("consecutiveErrors"), "is deprecated; use consecutive5xxErrors or consecutiveGatewayErrors")
	}
	if o.ConsecutiveLocalOriginFailures.GetValue() > 0 && !o.SplitExternalLocalOriginErrors {
		c.Fail(p.Field("consecutiveLocalOriginFailures"), "has no effect unless splitExternalLocalOriginErrors is true; set it")
	}
}

// ConnectionPool checks the limits of connections.
func ConnectionPool(c *check.Checker, p *document.Path, s *networking.ConnectionPoolSettings) {
	if s == nil {
		return
	}
	if s.Tcp == nil && s.Http == nil {
		c.Fail(p, "a connection pool must set tcp or http")
	}
	if h := s.Http; h != nil {
		at := p.Field("http")
		if h.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE && h.UseClientProtocol {
			c.Fail(at.Field("useClientProtocol"), "contradicts h2UpgradePolicy UPGRADE; keep one of them")
		}
		if k := h.Http2KeepAlive; k != nil {
			if k.Interval == nil {
				c.Fail(at.Field("http2KeepAlive").Field("interval"), "is needed: how often a ping is sent")
			}
			if k.Timeout == nil {
				c.Fail(at.Field("http2KeepAlive").Field("timeout"), "is needed: how long the answer to a ping may take")
			}
		}
	}
}

func loadBalancer(c *check.Checker, p *document.Path, lb *networking.LoadBalancerSettings, outlier bool) {
	if lb == nil {
		return
	}
	consistentHash(c, p.Field("consistentHash"), lb.GetConsistentHash())
	if lb.LocalityLbSetting != nil && lb.ZoneAwareLbSetting != nil {
		c.Fail(p.Field("zoneAwareLbSetting"), "excludes localityLbSetting; keep one of them")
	}
	LocalityLB(c, p.Field("localityLbSetting"), lb.LocalityLbSetting)
	ZoneAwareLB(c, p.Field("zoneAwareLbSetting"), lb.ZoneAwareLbSetting)
	if !outlier {
		const reason = "has no effect without outlierDetection, which finds out when to fail over"
		if l := lb.LocalityLbSetting; len(l.GetFailover())+len(l.GetFailoverPriority()) > 0 {
			c.Warn(p.Field("localityLbSetting").Field("failover"), reason)
		}
		if z := lb.ZoneAwareLbSetting; len(z.GetFailover())+len(z.GetFailoverPriority()) > 0 {
			c.Warn(p.Field("zoneAwareLbSetting").Field("failover"), reason)
		}
	}
	if lb.Warmup == nil && lb.WarmupDurationSecs == nil { //nolint:staticcheck // deprecated, and still in use
		return
	}
	if lb.WarmupDurationSecs != nil { //nolint:staticcheck // it is the deprecated field we look for
		c.Warn(p.Field("warmupDurationSecs"), "is deprecated; use warmup.duration")
	}
	at := p.Field("warmup")
	if lb.Warmup != nil && lb.Warmup.Duration == nil {
		c.Fail(at.Field("duration"), "is needed")
	}
	switch simple := lb.GetSimple(); {
	case lb.GetConsistentHash() != nil, simple == networking.LoadBalancerSettings_RANDOM,
		simple == networking.LoadBalancerSettings_PASSTHROUGH:
		c.Warn(at, "has an effect on ROUND_ROBIN and LEAST_REQUEST only")
	}
}

const (
	maxMaglev = 5000011 // first size that Envoy refuses
	maxRing   = 8 << 20 // last size that Envoy takes

	maxCookieAttribute = 16384 // bytes that Envoy takes
)

func consistentHash(c *check.Checker, p *document.Path, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if h == nil {
		return
	}
	switch key := h.HashKey.(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		at := p.Field("httpCookie")
		c.Rule(at.Field("name"), checkHashed("a cookie", key.HttpCookie.GetName()))
		seen := map[string]bool{}
		for i, a := range key.HttpCookie.GetAttributes() {
			name := at.Field("attributes").At(i).Field("name")
			if c.Rule(name, checkHashed("an attribute", a.GetName())) && seen[a.GetName()] {
				c.Fail(name, "%s is named twice", document.Quote(a.GetName()))
			}
			seen[a.GetName()] = true
			cookieAttribute(c, at.Field("attributes").At(i).Field("value"), a)
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.Rule(p.Field("httpHeaderName"), checkHashed("a header", key.HttpHeaderName))
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		c.Rule(p.Field("httpQueryParameterName"), checkHashed("a query parameter", key.HttpQueryParameterName))
	case nil:
		c.Warn(p, "says nothing of what to hash, so requests go anywhere; set httpHeaderName, httpCookie, httpQueryParameterName or useSourceIp")
	}
	if h.MinimumRingSize != 0 { //nolint:staticcheck // it is the deprecated field we look for
		c.Warn(p.Field("minimumRingSize"), "is deprecated; use ringHash.minimumRingSize")
		if h.GetRingHash() != nil || h.GetMaglev() != nil {
			c.Fail(p.Field("minimumRingSize"), "excludes ringHash and maglev; set ringHash.minimumRingSize instead")
		}
	}
	if size := h.GetRingHash().GetMinimumRingSize(); size > maxRing {
		c.Warn(p.Field("ringHash").Field("minimumRingSize"), "%d is more than Envoy takes; %d is used", size, maxRing)
	}
	if m := h.GetMaglev(); m != nil {
		at := p.Field("maglev").Field("tableSize")
		switch size := m.TableSize; {
		case size == 0:
			c.Fail(at, "is needed: a prime number below %d, such as 65537", maxMaglev)
		case size >= maxMaglev:
			c.Fail(at, "must be less than %d, not %d", maxMaglev, size)
		case !isPrime(size):
			c.Fail(at, "must be a prime number, which %d is not", size)
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

// cookieAttribute checks the value of an attribute of a cookie.
func cookieAttribute(c *check.Checker, p *document.Path, a *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie_Attribute) {
	c.AtMostBytes(p, a.GetValue(), maxCookieAttribute)
	if strings.ContainsAny(a.GetValue(), "\x00\r\n") {
		c.Fail(p, "has control characters; remove them")
	}
}
