package rules

import (
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
			c.warn(tracing.At(1), "only the first entry counts; merge them")
		}
		for i, t := range s.Tracing {
			if len(t.GetProviders()) > 1 {
				c.warn(tracing.At(i).Field("providers").At(1), "only the first provider counts; remove the others")
			}
			for _, name := range sortedKeys(t.GetCustomTags()) {
				c.customTag(tracing.At(i).Field("customTags").Key(name), name, t.CustomTags[name].GetHeader().GetName())
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

// customTag checks a tag of traces, which may have the value of a header.
func (c *checker) customTag(p *document.Path, name, header string) {
	if name == "" {
		c.fail(p, "a tag needs a name")
	}
	c.headerText(p.Field("header").Field("name"), header)
}

// logging checks an entry about access logs. A filter that Envoy cannot evaluate is no error, because the names in it are free.
func (c *checker) logging(p *document.Path, l *telemetry.AccessLogging) {
	if l.GetFilter() == nil {
		return
	}
	text, at := l.Filter.Expression, p.Field("filter").Field("expression")
	if !c.rule(at, syntax.Expression(text)) {
		return
	}
	reason := syntax.EnvoyExpression(text)
	if name := syntax.UnknownName(text); reason == "" && name != "" {
		reason = "Envoy has no value " + document.Quote(name) + ", only request, response, connection, source, destination, upstream, metadata, filter_state and xds"
	}
	if reason != "" {
		c.warn(at, "%s: nothing is logged by this entry", reason)
	}
}

func (c *checker) metricOverride(p *document.Path, o *telemetry.MetricsOverrides) {
	tags := p.Field("tagOverrides")
	for _, name := range sortedKeys(o.GetTagOverrides()) {
		tag, at := o.TagOverrides[name], tags.Key(name)
		if name == "" {
			c.warn(at, "a tag without a name is not reported; name it")
		}
		value := at.Field("value")
		switch {
		case tag.GetOperation() == telemetry.MetricsOverrides_TagOverride_REMOVE:
			if tag.GetValue() != "" {
				c.fail(value, "a tag that is removed has no value; leave it out, or use the operation UPSERT")
			}
		case tag.GetValue() == "":
			c.fail(value, "a tag needs a value: an expression such as request.host; to remove the tag, use the operation REMOVE")
		case c.rule(value, syntax.Expression(tag.Value)):
			if reason := syntax.EnvoyExpression(syntax.TagExpression(tag.Value)); reason != "" {
				c.warn(value, "%s: the metric does not have the tag", reason)
			}
		}
	}
}
