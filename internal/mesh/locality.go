package mesh

import "strings"

// Locality is the place where an endpoint or a proxy runs.
type Locality struct{ Region, Zone, SubZone string }

// ParseLocality parses "region/zone/subzone". Missing parts are empty.
func ParseLocality(s string) Locality {
	region, rest, _ := strings.Cut(s, "/")
	zone, subZone, _ := strings.Cut(rest, "/")
	return Locality{region, zone, subZone}
}

// Compare orders localities by region, zone and subzone.
func (l Locality) Compare(o Locality) int {
	if c := strings.Compare(l.Region, o.Region); c != 0 {
		return c
	}
	if c := strings.Compare(l.Zone, o.Zone); c != 0 {
		return c
	}
	return strings.Compare(l.SubZone, o.SubZone)
}

// String returns "region/zone/subzone" without empty parts at the end.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.SubZone, "/")
}

// Fits reports whether a locality matches a pattern such as "region/zone/*" or "region". Each part of a pattern is a name or "*".
// Missing parts at the end match all names.
func (l Locality) Fits(pattern string) bool {
	p := ParseLocality(pattern)
	fits := func(part, pattern string) bool { return pattern == "" || pattern == "*" || part == pattern }
	return (p.Region == "*" || p.Region == l.Region) && fits(l.Zone, p.Zone) && fits(l.SubZone, p.SubZone)
}
