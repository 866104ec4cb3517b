package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/check"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// LocalityLB checks how load is spread over localities.
func LocalityLB(c *check.Checker, p *document.Path, l *networking.LocalityLoadBalancerSetting) {
	if l == nil {
		return
	}
	switch {
	case len(l.Distribute) > 0 && len(l.Failover) > 0:
		c.Fail(p.Field("distribute"), "excludes failover; keep one of them")
	case len(l.Distribute) > 0 && len(l.FailoverPriority) > 0:
		c.Warn(p.Field("failoverPriority"), "has no effect beside distribute; keep one of them")
	}
	var from []string
	for i, d := range l.Distribute {
		at := p.Field("distribute").At(i)
		if d == nil {
			c.Fail(at, "must not be null")
			continue
		}
		if c.Rule(at.Field("from"), checkLocality(d.From)) {
			from = distinctLocality(c, at.Field("from"), d.From, from)
		}
		shares(c, at.Field("to"), d.To)
	}
	for i, f := range l.Failover {
		failover(c, p.Field("failover").At(i), f.GetFrom(), f.GetTo())
	}
	failoverPriority(c, p.Field("failoverPriority"), l.FailoverPriority, len(l.Failover) > 0)
}

func shares(c *check.Checker, p *document.Path, to map[string]uint32) {
	total := uint64(0)
	var known []string
	for _, locality := range slices.Sorted(maps.Keys(to)) {
		at := p.Key(locality)
		if c.Rule(at, checkLocality(locality)) {
			known = distinctLocality(c, at, locality, known)
		}
		if to[locality] == 0 {
			c.Fail(p, "the share of %s is 0; leave the locality out", document.Quote(locality))
			return
		}
		total += uint64(to[locality])
	}
	if total != 100 {
		c.Fail(p, "the shares add up to %d, not to 100", total)
	}
}

// distinctLocality reports a locality that overlaps one of those before it, and adds it to them.
func distinctLocality(c *check.Checker, p *document.Path, locality string, before []string) []string {
	for _, b := range before {
		if localitiesOverlap(locality, b) {
			c.Fail(p, "%s and %s overlap", document.Quote(locality), document.Quote(b))
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

func failover(c *check.Checker, p *document.Path, from, to string) {
	if from == to {
		c.Fail(p, "%s cannot fail over to itself", document.Quote(from))
		return
	}
	for _, r := range []struct{ field, region string }{{"from", from}, {"to", to}} {
		if r.region == "" || strings.ContainsAny(r.region, "*/") {
			c.Fail(p.Field(r.field), "%s is not a region: failover names regions, without zones and wildcards", document.Quote(r.region))
		}
	}
}

// failoverPriority checks the labels of a failover priority, which may have a value. Where failover between regions is decided
// otherwise, the labels of localities must not be among them.
func failoverPriority(c *check.Checker, p *document.Path, labels []string, regions bool) {
	seen := map[string]bool{}
	for i, l := range labels {
		key, text, _ := strings.Cut(l, "=")
		reason := syntax.WorkloadLabel(key, text)
		switch {
		case regions && slices.Contains([]string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"}, l):
			c.Fail(p.At(i), "the label %s names a locality, which failover decides already; remove it", l)
		case reason != "":
			c.Warn(p.At(i), "no workload has such a label: %s", reason)
		case seen[key]:
			c.Warn(p.At(i), "the label %s is named twice", document.Quote(key))
		}
		seen[key] = true
	}
}

// ZoneAwareLB checks how load is kept within zones.
func ZoneAwareLB(c *check.Checker, p *document.Path, z *networking.ZoneAwareLoadBalancerSetting) {
	if z == nil {
		return
	}
	for i, f := range z.Failover {
		failover(c, p.Field("failover").At(i), f.GetFrom(), f.GetTo())
	}
	failoverPriority(c, p.Field("failoverPriority"), z.FailoverPriority, true)
	if z.MinClusterSize != nil && z.MinClusterSize.Value == 0 {
		c.Fail(p.Field("minClusterSize"), "must be 1 at least")
	}
}
