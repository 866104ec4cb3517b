package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetryapi "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"google.golang.org/protobuf/encoding/protojson"
)

// specs parses the specs of Telemetries, one per text.
func specs(t *testing.T, texts []string) (list []*telemetryapi.Telemetry) {
	t.Helper()
	for _, text := range texts {
		json, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := new(telemetryapi.Telemetry)
		if err := protojson.Unmarshal(json, s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestMergeLogs(t *testing.T) {
	const both = `accessLogging: [{providers: [{name: a}, {name: b}]}]`
	for _, c := range []struct {
		name           string
		defaults       []string
		specs          []string
		client, server string
	}{
		{"nothing: the mesh's log", nil, nil, "mesh", "mesh"},
		{"default providers", []string{"a", "b"}, nil, "a b", "a b"},
		{"without entries about logs", []string{"a"}, []string{`tracing: [{}]`}, "a", "a"},
		{"an entry names providers", []string{"x"}, []string{both}, "a b", "a b"},
		{"an entry without names", []string{"x"}, []string{`accessLogging: [{}]`}, "x", "x"},
		{"no default, no name", nil, []string{`accessLogging: [{}]`}, "", ""},
		{"disabled", []string{"x"}, []string{`accessLogging: [{disabled: true}]`}, "", ""},
		{"on one side only", nil, []string{`accessLogging: [{match: {mode: SERVER}, providers: [{name: a}]}]`}, "", "a"},
		{"disabled on one side", nil, []string{both, `accessLogging: [{match: {mode: CLIENT}, disabled: true}]`}, "", "a b"},
		{"entries of one Telemetry", nil, []string{`accessLogging: [{providers: [{name: a}]}, {match: {mode: SERVER}, disabled: true}]`}, "a", ""},
		{"all that the upper level names", nil, []string{`accessLogging: [{providers: [{name: a}]}, {providers: [{name: b}]}]`, `accessLogging: [{disabled: true}]`}, "", ""},
		{"the lower level names others", nil, []string{both, `accessLogging: [{providers: [{name: c}]}]`}, "c", "c"},
		{"on one side the lower level names others", nil,
			[]string{both, `accessLogging: [{match: {mode: SERVER}, providers: [{name: c}]}]`}, "a b", "c"},
		{"the lower level disables one", nil, []string{both, `accessLogging: [{providers: [{name: a}], disabled: true}, {providers: [{name: b}]}]`}, "b", "b"},
		{"enabled again below", []string{"x"}, []string{`accessLogging: [{disabled: true}]`, `accessLogging: [{disabled: false}]`}, "x", "x"},
		{"a filter", []string{"x"}, []string{`accessLogging: [{filter: {expression: "code >= 500"}}]`}, "x[code >= 500]", "x[code >= 500]"},
		{"a filter per side", nil, []string{`accessLogging: [{match: {mode: CLIENT}, providers: [{name: a}], filter: {expression: c}}, {match: {mode: SERVER}, providers: [{name: a}], filter: {expression: s}}]`}, "a[c]", "a[s]"},
		{"the lower level has another filter", nil,
			[]string{`accessLogging: [{providers: [{name: a}], filter: {expression: x}}]`, `accessLogging: [{providers: [{name: a}]}]`}, "a", "a"},
	} {
		list := specs(t, c.specs)
		for side, want := range map[Side]string{Client: c.client, Server: c.server} {
			logs, mesh := mergeLogs(list, c.defaults, side)
			var got []string
			for _, l := range logs {
				if l.Filter != "" {
					l.Provider += "[" + l.Filter + "]"
				}
				got = append(got, l.Provider)
			}
			if mesh {
				got = append(got, "mesh")
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s, side %d: %q, want %q", c.name, side, text, want)
			}
		}
	}
}

func TestMergeTraces(t *testing.T) {
	for _, c := range []struct {
		name           string
		defaults       []string
		mesh           string
		bootstrap      bool
		specs          []string
		client, server string
	}{
		{"nothing", nil, `{}`, false, nil, "off", "off"},
		{"the collector in the bootstrap", nil, `{sampling: 20}`, true, nil, " 20%", " 20%"},
		{"without its tags", nil, `{enableIstioTags: false}`, true, nil, " 1% plain", " 1% plain"},
		{"a default provider", []string{"a", "b"}, `{}`, false, nil, "a 1%", "a 1%"},
		{"sampling of the mesh", []string{"a"}, `{sampling: 20}`, false, nil, "a 20%", "a 20%"},
		{"sampling of a Telemetry", []string{"a"}, `{sampling: 20}`, false, []string{`tracing: [{randomSamplingPercentage: 0}]`}, "a 0%", "a 0%"},
		{"one side", nil, `{}`, false, []string{`tracing: [{match: {mode: CLIENT}, providers: [{name: a}]}]`}, "a 1%", "off"},
		{"spans disabled", []string{"a"}, `{}`, false, []string{`tracing: [{disableSpanReporting: true}]`}, "off", "off"},
		{"enabled below", []string{"a"}, `{}`, false, []string{`tracing: [{disableSpanReporting: true}]`, `tracing: [{disableSpanReporting: false}]`}, "a 1%", "a 1%"},
		{"enabled below on one side", []string{"a"}, `{}`, false,
			[]string{`tracing: [{disableSpanReporting: true}]`, `tracing: [{match: {mode: SERVER}, disableSpanReporting: false}]`}, "off", "a 1%"},
		{"the bootstrap counts no more", nil, `{}`, true, []string{`tracing: [{randomSamplingPercentage: 5}]`}, "off", "off"},
		{"tags replace the ones of the mesh", []string{"a"}, `{customTags: {m: {literal: {value: x}}}}`, false,
			[]string{`tracing: [{customTags: {b: {header: {name: h, defaultValue: d}}, a: {environment: {name: E}}}}]`}, "a 1% a=1:E/ b=2:h/d", "a 1% a=1:E/ b=2:h/d"},
		{"tags of the mesh", []string{"a"}, `{customTags: {m: {literal: {value: x}}}}`, false, nil, "a 1% m=0:x/", "a 1% m=0:x/"},
		{"all switches", []string{"a"}, `{}`, false,
			[]string{`tracing: [{enableIstioTags: false, useRequestIdForTraceSampling: false, disableContextPropagation: true}]`}, "a 1% plain noid isolated", "a 1% plain noid isolated"},
	} {
		mesh := new(meshconfig.Tracing)
		json, err := yaml.YAMLToJSON([]byte(c.mesh))
		if err == nil {
			err = protojson.Unmarshal(json, mesh)
		}
		if err != nil {
			t.Fatal(err)
		}
		list := specs(t, c.specs)
		for side, want := range map[Side]string{Client: c.client, Server: c.server} {
			v, on := mergeTraces(list, c.defaults, mesh, 1, c.bootstrap, side)
			if got := shown(v, on); got != want {
				t.Errorf("%s, side %d: %q, want %q", c.name, side, got, want)
			}
		}
	}
}

func shown(v Traces, on bool) string {
	if !on {
		return "off"
	}
	text := fmt.Sprintf("%s %g%%", v.Provider, v.Sampling)
	for _, tag := range v.Tags {
		text += fmt.Sprintf(" %s=%d:%s/%s", tag.Name, tag.Source, tag.Value, tag.Default)
	}
	if v.NoWorkloadTags {
		text += " plain"
	}
	if v.IgnoreRequestID {
		text += " noid"
	}
	if v.Isolated {
		text += " isolated"
	}
	return text
}

func TestMergeMetrics(t *testing.T) {
	const on = `metrics: [{providers: [{name: prometheus}]}]`
	for _, c := range []struct {
		name           string
		defaults       []string
		specs          []string
		client, server string
	}{
		{"off", nil, nil, "", ""},
		{"default", []string{"prometheus"}, nil, "all", "all"},
		{"a provider that is unknown", []string{"other"}, nil, "", ""},
		{"named by a Telemetry", nil, []string{on}, "all", "all"},
		{"another provider below", nil, []string{on, `metrics: [{providers: [{name: other}]}]`}, "", ""},
		{"all disabled", nil, []string{on, `metrics: [{overrides: [{match: {metric: ALL_METRICS}, disabled: true}]}]`}, "", ""},
		{"all disabled without a match", nil, []string{on, `metrics: [{overrides: [{disabled: true}]}]`}, "", ""},
		{"on one side", nil, []string{on, `metrics: [{overrides: [{match: {metric: ALL_METRICS, mode: CLIENT}, disabled: true}]}]`}, "", "all"},
		{"only one", nil, []string{on, `metrics: [{overrides: [{disabled: true}, {match: {metric: REQUEST_COUNT}, disabled: false}]}]`}, "REQUEST_COUNT", "REQUEST_COUNT"},
		{"enabled below", nil, []string{`metrics: [{providers: [{name: prometheus}], overrides: [{disabled: true}]}]`,
			`metrics: [{overrides: [{match: {metric: REQUEST_SIZE, mode: SERVER}, disabled: false}]}]`}, "", "REQUEST_SIZE"},
		{"overrides for another provider", []string{"prometheus"}, []string{
			`metrics: [{providers: [{name: other}], overrides: [{disabled: true}]}]`, on}, "all", "all"},
		{"tags", nil, []string{`metrics: [{providers: [{name: prometheus}], overrides: [
			{match: {metric: ALL_METRICS}, disabled: true},
			{match: {metric: REQUEST_COUNT}, disabled: false, tagOverrides: {b: {operation: REMOVE}, a: {value: request.host}, c: {value: x}}},
			{match: {metric: REQUEST_COUNT}, tagOverrides: {b: {value: z}, c: {operation: REMOVE}}}]}]`}, "REQUEST_COUNT -c a=request.host b=z", "REQUEST_COUNT -c a=request.host b=z"},
	} {
		list := specs(t, c.specs)
		for side, want := range map[Side]string{Client: c.client, Server: c.server} {
			metrics := mergeMetrics(list, c.defaults, side, func(name string) bool { return name == "prometheus" })
			var got []string
			for _, m := range metrics {
				got = append(got, m.ID.String())
				for _, name := range m.Removed {
					got = append(got, "-"+name)
				}
				for _, tag := range m.Tags {
					got = append(got, tag.Name+"="+tag.Value)
				}
			}
			text := strings.Join(got, " ")
			if len(metrics) == len(allMetrics()) && len(got) == len(metrics) {
				text = "all"
			}
			if text != want {
				t.Errorf("%s, side %d: %q, want %q", c.name, side, text, want)
			}
		}
	}
	if !slices.IsSorted(allMetrics()) {
		t.Error("metrics are not in order")
	}
}
