package rules

import (
	"maps"
	"slices"

	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Telemetry checks a Telemetry.
func Telemetry(s *telemetry.Telemetry, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.attachment(at, s.Selector, s.TargetRef, s.TargetRefs)
		tracing := at.Field("tracing")
		if len(s.Tracing) > 1 {
			c.Warn(tracing.At(1), "only the first entry counts; merge them")
		}
		for i, t := range s.Tracing {
			if len(t.GetProviders()) > 1 {
				c.Warn(tracing.At(i).Field("providers").At(1), "only the first provider counts; remove the others")
			}
			for _, name := range slices.Sorted(maps.Keys(t.GetCustomTags())) {
				c.CustomTag(tracing.At(i).Field("customTags").Key(name), name, t.CustomTags[name].GetHeader().GetName())
			}
		}
		for i, m := range s.Metrics {
			for j, o := range m.GetOverrides() {
				c.metricOverride(at.Field("metrics").At(i).Field("overrides").At(j), o)
			}
		}
		for i, l := range s.AccessLogging {
			c.logging(at.Field("accessLogging").At(i), l)
		}
	})
}

// logging checks an entry about access logs. A filter that Envoy cannot evaluate is no error, because the names in it are free.
func (c *checker) logging(p *document.Path, l *telemetry.AccessLogging) {
	if l.GetFilter() == nil {
		return
	}
	text, at := l.Filter.Expression, p.Field("filter").Field("expression")
	if !c.Rule(at, syntax.Expression(text)) {
		return
	}
	reason := syntax.EnvoyExpression(text)
	if name := syntax.UnknownName(text); reason == "" && name != "" {
		reason = "Envoy has no value " + document.Quote(name) + ", only request, response, connection, source, destination, upstream, metadata, filter_state and xds"
	}
	if reason != "" {
		c.Warn(at, "%s: nothing is logged by this entry", reason)
	}
}

func (c *checker) metricOverride(p *document.Path, o *telemetry.MetricsOverrides) {
	tags := p.Field("tagOverrides")
	for _, name := range slices.Sorted(maps.Keys(o.GetTagOverrides())) {
		tag, at := o.TagOverrides[name], tags.Key(name)
		if name == "" {
			c.Warn(at, "a tag without a name is not reported; name it")
		}
		value := at.Field("value")
		switch {
		case tag.GetOperation() == telemetry.MetricsOverrides_TagOverride_REMOVE:
			if tag.GetValue() != "" {
				c.Fail(value, "a tag that is removed has no value; leave it out, or use the operation UPSERT")
			}
		case tag.GetValue() == "":
			c.Fail(value, "a tag needs a value: an expression such as request.host; to remove the tag, use the operation REMOVE")
		case c.Rule(value, syntax.Expression(tag.Value)):
			if reason := syntax.EnvoyExpression(syntax.TagExpression(tag.Value)); reason != "" {
				c.Warn(value, "%s: the metric does not have the tag", reason)
			}
		}
	}
}
