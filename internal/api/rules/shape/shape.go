// Package shape checks single fields of objects, wherever their message occurs: ranges of numbers and durations, lengths, required fields, labels.
// It knows fields by their descriptors, so that a new kind with known messages needs no rules of its own. Rules about several fields of a kind are in
// package rules.
//
// The package has no state and starts no goroutines.
package shape

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// shape is a rule for the value of one field, wherever its message occurs.
type shape uint8

const (
	anyShape       shape = iota
	positiveTime         // a duration of 1 ms at least
	aboveZero            // a duration above zero
	anyTime              // a duration that may be zero
	positiveMillis       // a duration of whole milliseconds, 1ms at least: the rule for every duration not named below
	anyMillis            // a duration of whole milliseconds, or zero
	portNumber           // 1 to 65535 where it is set
	percentage           // 0 to 100
	positive             // a wrapped number above zero
	labelSet             // a map of labels
	subsetLabels         // a map of labels whose values may be longer than labels are
	selectorSet          // a map of labels without wildcards
	portMap              // a map from port names to port numbers
	statusCode           // an HTTP status
	atMost256            // entries of a list
	atMost4096           // entries of a list
	length64             // bytes of a string
	length256            // bytes of a string
	length253            // bytes of a string
	length2048           // bytes of a string
	length65536          // bytes of a string
)

// maxTime is the longest duration that Envoy takes.
const maxTime = time.Duration(math.MaxInt64/int64(time.Second)-1) * time.Second

const networkingPackage = "istio.networking.v1alpha3."

// shapeOf returns the rule for a field. Signed numbers need no entry, because no field may be negative.
func shapeOf(f protoreflect.FieldDescriptor) shape {
	switch strings.TrimPrefix(string(f.FullName()), networkingPackage) {
	case "istio.mesh.v1alpha1.MeshConfig.connect_timeout", "istio.mesh.v1alpha1.MeshConfig.dns_refresh_rate":
		return positiveMillis
	case "istio.mesh.v1alpha1.MeshConfig.protocol_detection_timeout":
		return anyMillis
	case "istio.mesh.v1alpha1.PrivateKeyProvider.CryptoMb.poll_delay", "istio.mesh.v1alpha1.PrivateKeyProvider.QAT.poll_delay":
		return aboveZero
	case "LoadBalancerSettings.warmup_duration_secs", "istio.telemetry.v1alpha1.Metrics.reporting_interval":
		return positiveTime
	case "ConnectionPoolSettings.TCPSettings.idle_timeout":
		return anyMillis
	case "LoadBalancerSettings.ConsistentHashLB.HTTPCookie.ttl", "TrafficPolicy.RetryBudget.budget_interval",
		"LoadBalancerSettings.BackendUtilizationLB.weight_stabilization_period",
		"LoadBalancerSettings.BackendUtilizationLB.weight_expiration_period",
		"LoadBalancerSettings.BackendUtilizationLB.weight_update_period":
		return anyTime
	case "HTTPMatchRequest.port", "L4MatchAttributes.port", "TLSMatchAttributes.port", "HTTPRedirect.port",
		"ServicePort.target_port", "EnvoyFilter.WaypointMatch.port_number", "GrpcHealthCheckConfig.port", "istio.type.v1beta1.PortSelector.number":
		return portNumber
	case "Percent.value", "HTTPFaultInjection.Delay.percent", "HTTPRoute.mirror_percent",
		"OutlierDetection.max_ejection_percent", "OutlierDetection.min_health_percent",
		"WarmupConfiguration.minimum_percent", "TrafficPolicy.RetryBudget.percent", "istio.telemetry.v1alpha1.Tracing.random_sampling_percentage":
		return percentage
	case "Subset.labels":
		return subsetLabels
	case "WorkloadEntry.labels", "HTTPMatchRequest.source_labels", "L4MatchAttributes.source_labels",
		"TLSMatchAttributes.source_labels":
		return labelSet
	case "WorkloadSelector.labels", "istio.type.v1beta1.WorkloadSelector.match_labels":
		return selectorSet
	case "WorkloadEntry.ports":
		return portMap
	case "WarmupConfiguration.aggression":
		return positive
	case "OutlierDetection.outlier_detection_http_error_codes":
		return statusCode
	case "ServiceEntry.hosts", "ServiceEntry.ports", "istio.extensions.v1alpha1.VmConfig.env":
		return atMost256
	case "ServiceEntry.endpoints", "TrafficPolicy.port_level_settings":
		return atMost4096
	}
	if rule := lengthOf(f); rule != anyShape {
		return rule
	}
	if m := f.Message(); m != nil && m.FullName() == "google.protobuf.Duration" {
		if strings.HasPrefix(string(f.FullName()), "istio.mesh.") {
			return anyTime // zero switches most of them off
		}
		return positiveMillis
	}
	return anyShape
}

// lengthOf returns the rule for the length of a text.
func lengthOf(f protoreflect.FieldDescriptor) shape {
	switch strings.TrimPrefix(string(f.FullName()), networkingPackage) {
	case "ServiceEntry.addresses":
		return length64
	case "WorkloadEntry.address", "ServicePort.name", "ServicePort.protocol", "istio.extensions.v1alpha1.WasmPlugin.plugin_name",
		"istio.extensions.v1alpha1.WasmConfig.plugin_name", "istio.extensions.v1alpha1.EnvVar.name":
		return length256
	case "WorkloadEntry.service_account", "istio.extensions.v1alpha1.WasmPlugin.image_pull_secret",
		"istio.extensions.v1alpha1.WasmConfig.image_pull_secret", "istio.type.v1beta1.PolicyTargetReference.name":
		return length253
	case "WorkloadEntry.network", "WorkloadEntry.locality", "istio.extensions.v1alpha1.EnvVar.value",
		"istio.networking.v1beta1.ProxyConfig.environment_variables", "istio.security.v1beta1.JWTRule.jwks_uri":
		return length2048
	case "istio.extensions.v1alpha1.LuaConfig.inline_code":
		return length65536
	}
	return anyShape
}

// mayBeNegative reports whether a signed number has no lower bound.
func mayBeNegative(f protoreflect.FieldDescriptor) bool {
	return f.FullName() == networkingPackage+"EnvoyFilter.priority"
}

// isRequired reports whether a field must be set, and not be empty, wherever its message occurs. Rules of kinds require further
// fields, depending on others.
func isRequired(f protoreflect.FieldDescriptor) bool {
	switch strings.TrimPrefix(string(f.FullName()), "istio.") {
	case "telemetry.v1alpha1.ProviderRef.name", "telemetry.v1alpha1.Tracing.Literal.value", "telemetry.v1alpha1.Tracing.Environment.name",
		"telemetry.v1alpha1.Tracing.RequestHeader.name", "telemetry.v1alpha1.Tracing.Formatter.value",
		"mesh.v1alpha1.Tracing.Literal.value", "mesh.v1alpha1.Tracing.Environment.name", "mesh.v1alpha1.Tracing.RequestHeader.name",
		"extensions.v1alpha1.WasmPlugin.url", "extensions.v1alpha1.WasmConfig.url", "extensions.v1alpha1.EnvVar.name",
		"extensions.v1alpha1.LuaConfig.inline_code", "type.v1beta1.PortSelector.number",
		"networking.v1alpha3.EnvoyFilter.EnvoyConfigObjectPatch.patch":
		return true
	}
	return false
}

// NotZero returns why a field must not be zero, although it may be omitted; "" if it may be zero.
func NotZero(f protoreflect.FieldDescriptor) string {
	if shapeOf(f) == portNumber {
		return syntax.Port(0)
	}
	return ""
}

// Check adds findings about the fields that are set in a message, in order, and about required ones that are not. p is the place of the message.
func Check(r *document.Report, p *document.Path, m protoreflect.Message) { walk{r}.message(p, m) }

// walk checks the fields of one object.
type walk struct{ *document.Report }

func (w walk) fail(p *document.Path, format string, args ...any) { w.Fail(0, p, format, args...) }
func (w walk) warn(p *document.Path, format string, args ...any) { w.Warn(0, p, format, args...) }

// rule adds an error if a check function returned a reason. It returns whether there was no reason.
func (w walk) rule(p *document.Path, reason string) bool {
	if reason != "" {
		w.fail(p, "%s", reason)
	}
	return reason == ""
}

func (w walk) message(p *document.Path, m protoreflect.Message) {
	w.selector(p, m)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			if isRequired(f) {
				w.fail(p.Field(f.JSONName()), "is needed")
			}
			continue
		}
		at := p.Field(f.JSONName())
		rule := shapeOf(f)
		switch v := m.Get(f); {
		case f.IsMap():
			w.mapShapes(at, v.Map(), f, rule)
		case f.IsList():
			w.listShapes(at, v.List(), f, rule)
		default:
			w.shape(at, v, f, rule)
		}
	}
}

func (w walk) listShapes(p *document.Path, l protoreflect.List, f protoreflect.FieldDescriptor, rule shape) {
	limit := 0
	switch rule {
	case atMost256, length64:
		limit = 256
	case atMost4096:
		limit = 4096
	}
	if limit > 0 && l.Len() > limit {
		w.fail(p, "has %d entries, the limit is %d; split the object", l.Len(), limit)
	}
	for i := range l.Len() {
		w.shape(p.At(i), l.Get(i), f, rule)
	}
}

// mapLimit returns the maximum number of entries of a map.
func mapLimit(f protoreflect.FieldDescriptor, rule shape) int {
	switch {
	case rule == portMap:
		return 128
	case f.FullName() == "istio.type.v1beta1.WorkloadSelector.match_labels":
		return 4096
	case rule == labelSet, rule == selectorSet, strings.HasPrefix(string(f.FullName()), networkingPackage+"WorkloadGroup.ObjectMeta."):
		return 256
	}
	return math.MaxInt
}

func (w walk) mapShapes(p *document.Path, m protoreflect.Map, f protoreflect.FieldDescriptor, rule shape) {
	if limit := mapLimit(f, rule); m.Len() > limit {
		w.fail(p, "has %d entries, the limit is %d", m.Len(), limit)
	}
	keys := make([]protoreflect.MapKey, 0, m.Len())
	for k := range m.Range {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range keys {
		key := k.String()
		at, v := p.Key(key), m.Get(k)
		switch rule {
		case selectorSet:
			w.selectedLabel(at, key, v.String())
		case labelSet:
			w.rule(at, syntax.WorkloadLabel(key, v.String()))
		case subsetLabels:
			if n := len(v.String()); n > syntax.MaxLabel && syntax.WorkloadLabel(key, v.String()[n-syntax.MaxLabel:]) == "" {
				w.warn(at, "selects nothing: the value of a label has %d characters at most", syntax.MaxLabel)
				continue
			}
			w.rule(at, syntax.WorkloadLabel(key, v.String()))
		case portMap:
			switch {
			case len(key) == syntax.MaxLabel: // the schema has the limit one lower than names have
				w.fail(at, "%s has %d characters, the limit is %d", document.Quote(key), len(key), syntax.MaxLabel-1)
			case w.rule(at, syntax.Name(key)):
				w.rule(at, syntax.Port(uint32(v.Uint())))
			}
		case length2048:
			w.shape(at, v, f.MapValue(), rule)
		default:
			w.shape(at, v, f.MapValue(), anyShape)
		}
	}
}

// selectedLabel checks a label that workloads are selected by.
func (w walk) selectedLabel(p *document.Path, key, text string) {
	switch {
	case strings.Contains(key+text, "*"):
		w.fail(p, "labels are selected by exact value, without wildcards")
	case key == "":
		w.fail(p, "a label needs a key")
	case len(text) > syntax.MaxLabel:
		w.fail(p, "the value has %d characters, the limit is %d", len(text), syntax.MaxLabel)
	default:
		if reason := syntax.WorkloadLabel(key, text); reason != "" {
			w.warn(p, "selects nothing: %s", reason)
		}
	}
}

// selector warns of a selector that selects everything, because it has no labels.
func (w walk) selector(p *document.Path, m protoreflect.Message) {
	name := m.Descriptor().FullName()
	if name != networkingPackage+"WorkloadSelector" && name != "istio.type.v1beta1.WorkloadSelector" {
		return
	}
	if m.Get(m.Descriptor().Fields().Get(0)).Map().Len() == 0 {
		w.warn(p, "has no labels, so it selects every workload; remove it if that is meant")
	}
}

// shape checks one value and everything in it.
func (w walk) shape(p *document.Path, v protoreflect.Value, f protoreflect.FieldDescriptor, rule shape) {
	switch rule {
	case positiveTime, aboveZero, anyTime, positiveMillis, anyMillis:
		w.timeShape(p, v.Message(), rule)
		return
	case portNumber:
		w.rule(p, syntax.Port(uint32(v.Uint())))
		return
	case percentage:
		if n := numeric(v); n < 0 || n > 100 {
			w.fail(p, "must be from 0 to 100, not %v", n)
		}
		return
	case positive:
		if n := numeric(v); n <= 0 {
			w.fail(p, "must be above 0, not %v", n)
		}
		return
	case statusCode:
		if n := numeric(v); n < 100 || n > 599 {
			w.fail(p, "must be an HTTP status from 100 to 599, not %v", n)
		}
		return
	case length64, length253, length256, length2048, length65536:
		limit := map[shape]int{length64: 64, length253: 253, length256: 256, length2048: 2048, length65536: 65536}[rule]
		if n := len(v.String()); n > limit {
			w.fail(p, "has %d characters, the limit is %d", n, limit)
		}
		return
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		if f.FullName() == "istio.networking.v1beta1.ProxyConfig.concurrency" && numeric(v) < 0 {
			w.fail(p, "must not be negative, but is %v; 0 means all cores", numeric(v))
		}
		if f.Message().ParentFile().Package() != "google.protobuf" {
			w.message(p, v.Message())
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if v.Int() < 0 && !mayBeNegative(f) {
			w.fail(p, "must not be negative, but is %d", v.Int())
		}
	}
}

func (w walk) timeShape(p *document.Path, m protoreflect.Message, rule shape) {
	t, ok := m.Interface().(*durationpb.Duration)
	if !ok {
		return
	}
	d := t.AsDuration()
	switch {
	case (rule == positiveTime || rule == positiveMillis) && d < time.Millisecond:
		w.fail(p, "must be 1ms at least, not %v; remove it for the default", d)
	case d < 0:
		w.fail(p, "must not be negative, but is %v", d)
	case d > maxTime:
		w.fail(p, "Envoy takes %ds at most, and this is %v; shorten it", maxTime/time.Second, d)
	case (rule == positiveMillis || rule == anyMillis) && d%time.Millisecond != 0:
		w.fail(p, "must be whole milliseconds, not %v", d)
	case rule == aboveZero && d == 0:
		w.fail(p, "must be above 0")
	}
}

// numeric reads a number or one of protobuf's wrappers of numbers.
func numeric(v protoreflect.Value) float64 {
	switch n := v.Interface().(type) {
	case int32:
		return float64(n)
	case uint32:
		return float64(n)
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	case float32:
		return float64(n)
	case float64:
		return n
	case protoreflect.Message:
		return numeric(n.Get(n.Descriptor().Fields().ByName("value")))
	}
	return 0
}
