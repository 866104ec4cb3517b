package config

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// bucketsAnnotation is the annotation with the buckets of histograms, as a JSON object of lists by prefixes of names.
	bucketsAnnotation = "sidecar.istio.io/statsHistogramBuckets"
	// binsAnnotation is the annotation with the number of bins of histograms of the mesh's metrics.
	binsAnnotation = "sidecar.istio.io/statsHistogramBins"
)

// loadStats reads the selection of Envoy's statistics. An annotation of the pod replaces the list of the same kind in proxyStatsMatcher.
func (s *Settings) loadStats(errs *problems) {
	matcher := s.Proxy.GetProxyStatsMatcher()
	for _, list := range []struct {
		annotation, field string
		configured        []string
		into              *[]string
	}{
		{"sidecar.istio.io/statsInclusionPrefixes", "inclusionPrefixes", matcher.GetInclusionPrefixes(), &s.Stats.Prefixes},
		{"sidecar.istio.io/statsInclusionSuffixes", "inclusionSuffixes", matcher.GetInclusionSuffixes(), &s.Stats.Suffixes},
		{"sidecar.istio.io/statsInclusionRegexps", "inclusionRegexps", matcher.GetInclusionRegexps(), &s.Stats.Regexes},
	} {
		where := "proxyStatsMatcher." + list.field
		*list.into = list.configured
		if text := s.Annotations[list.annotation]; text != "" {
			where, *list.into = list.annotation, strings.Split(text, ",")
		}
		for _, pattern := range *list.into {
			if pattern == "" {
				errs.add(where, "an element is empty and would match every statistic; remove it")
			}
			if list.field != "inclusionRegexps" {
				continue
			}
			if _, err := regexp.Compile(pattern); err != nil {
				errs.add(where, "%w; use the syntax of RE2", err)
			}
		}
	}
	s.loadBuckets(errs)
	if text := s.Annotations[binsAnnotation]; text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			errs.add(binsAnnotation, "%q is not a number from 1 to 65535", text)
		}
		s.Stats.Bins = uint32(n)
	}
}

// In Istio's proxy the names of the mesh's metrics begin with istiocustom, and here with istio_.
const (
	customMetrics = "istiocustom"
	meshMetrics   = "istio_"
)

func (s *Settings) loadBuckets(errs *problems) {
	text := s.Annotations[bucketsAnnotation]
	if text == "" {
		return
	}
	if err := json.Unmarshal([]byte(text), &s.Stats.Buckets); err != nil {
		errs.add(bucketsAnnotation, `%w; write it as {"cluster.outbound":[1,10,100]}`, err)
		return
	}
	if bounds, ok := s.Stats.Buckets[customMetrics]; ok {
		delete(s.Stats.Buckets, customMetrics)
		s.Stats.Buckets[meshMetrics] = bounds
	}
	for prefix, bounds := range s.Stats.Buckets {
		ascending := slices.IsSorted(bounds) && len(slices.Compact(slices.Clone(bounds))) == len(bounds)
		if prefix == "" || len(bounds) == 0 || bounds[0] <= 0 || !ascending {
			errs.add(bucketsAnnotation, "%q: %v is not a list of ascending numbers above 0 behind the prefix of a name", prefix, bounds)
		}
	}
}
