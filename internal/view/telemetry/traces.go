package telemetry

import (
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// Traces is how proxies trace requests.
type Traces struct {
	// Provider is the name of the provider that gets the spans. It is empty if the collector in the proxy's bootstrap gets them.
	Provider string
	// Sampling is the percentage of requests that are traced if no caller decided about that.
	Sampling float64
	// Tags are the additional tags of spans, by name.
	Tags []Tag
	// MaxPath is how long the path in a span may be; 0 for the default of the provider.
	MaxPath uint32
	// NoWorkloadTags leaves out the tags that say which workload made a span.
	NoWorkloadTags bool
	// IgnoreRequestID decides about sampling without regard to the id of a request.
	IgnoreRequestID bool
	// Isolated sends no trace headers to the next proxy.
	Isolated bool
}

// TagSource is where the value of a tag comes from.
type TagSource uint8

// The sources of tags.
const (
	// FromText is the text itself, FromEnvironment the variable of this name, FromHeader the header of the request.
	FromText TagSource = iota
	FromEnvironment
	FromHeader
	// FromFormat is a text with operators, as access logs have them.
	FromFormat
)

// Tag is an additional tag of spans.
type Tag struct {
	Name   string
	Source TagSource
	// Value is the text, or the name of the variable or header. Default is its value if there is none.
	Value, Default string
}

// TracesOf returns how proxies trace to which a set applies; false if they do not.
func TracesOf(t *state.Tables, r *query.Reader, s Set, side Side) (Traces, bool) {
	settings, bootstrap := t.Tracing(r)
	return mergeTraces(s.Specs(t, r), t.DefaultTracers(r), settings, t.TraceSampling(), bootstrap, side)
}

// mergeTraces merges the specs over the settings of the mesh. sampling is the percentage of new requests that are traced if none of these sets one.
func mergeTraces(specs []*telemetryapi.Telemetry, defaults []string, mesh *meshconfig.Tracing, sampling float64, bootstrap bool, side Side) (Traces, bool) {
	v := Traces{Sampling: sampling, MaxPath: mesh.GetMaxPathTagLength(), Tags: meshTags(mesh.GetCustomTags())}
	if s := mesh.GetSampling(); s > 0 && s <= 100 {
		v.Sampling = s
	}
	said, off := len(defaults) > 0, false
	if said {
		v.Provider = defaults[0]
	}
	for _, s := range specs {
		for _, e := range s.GetTracing() {
			said = true
			if side.in(e.GetMatch().GetMode()) {
				off = v.add(e, off)
			}
		}
	}
	if !said {
		v.NoWorkloadTags = mesh.GetEnableIstioTags() != nil && !mesh.GetEnableIstioTags().GetValue()
		return v, bootstrap
	}
	return v, !off && v.Provider != ""
}

// add merges one entry of a Telemetry. off is whether spans are reported no more, before and after.
func (v *Traces) add(e *telemetryapi.Tracing, off bool) bool {
	if names := namesOf(e.GetProviders()); len(names) > 0 {
		v.Provider = names[0]
	}
	if e.GetCustomTags() != nil {
		v.Tags = tagsOf(e.GetCustomTags())
	}
	if s := e.GetRandomSamplingPercentage(); s != nil {
		v.Sampling = s.GetValue()
	}
	if u := e.GetUseRequestIdForTraceSampling(); u != nil {
		v.IgnoreRequestID = !u.GetValue()
	}
	if i := e.GetEnableIstioTags(); i != nil {
		v.NoWorkloadTags = !i.GetValue()
	}
	if d := e.GetDisableContextPropagation(); d != nil {
		v.Isolated = d.GetValue()
	}
	if d := e.GetDisableSpanReporting(); d != nil {
		return d.GetValue()
	}
	return off
}

func tagsOf(tags map[string]*telemetryapi.Tracing_CustomTag) (list []Tag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		tag := Tag{Name: name}
		switch from := tags[name].GetType().(type) {
		case *telemetryapi.Tracing_CustomTag_Literal:
			tag.Value = from.Literal.GetValue()
		case *telemetryapi.Tracing_CustomTag_Environment:
			tag.Source, tag.Value, tag.Default = FromEnvironment, from.Environment.GetName(), from.Environment.GetDefaultValue()
		case *telemetryapi.Tracing_CustomTag_Header:
			tag.Source, tag.Value, tag.Default = FromHeader, from.Header.GetName(), from.Header.GetDefaultValue()
		case *telemetryapi.Tracing_CustomTag_Formatter:
			tag.Source, tag.Value = FromFormat, from.Formatter.GetValue()
		default:
			continue
		}
		list = append(list, tag)
	}
	return list
}

func meshTags(tags map[string]*meshconfig.Tracing_CustomTag) (list []Tag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		tag := Tag{Name: name}
		switch from := tags[name].GetType().(type) {
		case *meshconfig.Tracing_CustomTag_Literal:
			tag.Value = from.Literal.GetValue()
		case *meshconfig.Tracing_CustomTag_Environment:
			tag.Source, tag.Value, tag.Default = FromEnvironment, from.Environment.GetName(), from.Environment.GetDefaultValue()
		case *meshconfig.Tracing_CustomTag_Header:
			tag.Source, tag.Value, tag.Default = FromHeader, from.Header.GetName(), from.Header.GetDefaultValue()
		default:
			continue
		}
		list = append(list, tag)
	}
	return list
}
