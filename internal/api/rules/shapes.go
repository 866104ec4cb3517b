package rules

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// shape is a rule for the value of one field, wherever its message occurs.
type shape uint8

const (
	anyShape       shape = iota
	positiveTime         // a duration of 1 ms at least: the rule for every duration not named below
	anyTime              // a duration that may be zero
	positiveMillis       // a duration of whole milliseconds, 1ms at least
	anyMillis            // a duration of whole milliseconds, or zero
	idleTime             // a duration that API servers want positive, and that meshes without one set to zero
	portNumber           // 1 to 65535 where it is set
	percentage           // 0 to 100
	notNegative          // a wrapped number
	labelSet             // a map of labels
	selectorSet          // a map of labels without wildcards
	portMap              // a map from port names to port numbers
	statusCode           // an HTTP status
	atMost256            // entries of a list
	atMost4096           // entries of a list
	length64             // bytes of a string
	length256            // bytes of a string
	length253            // bytes of a string
	length2048           // bytes of a string
)

const networkingPackage = "istio.networking.v1alpha3."

// shapeOf returns the rule for a field. Signed numbers need no entry, because no field may be negative.
func shapeOf(f protoreflect.FieldDescriptor) shape {
	switch strings.TrimPrefix(string(f.FullName()), networkingPackage) {
	case "istio.mesh.v1alpha1.MeshConfig.connect_timeout", "istio.mesh.v1alpha1.MeshConfig.dns_refresh_rate":
		return positiveMillis
	case "istio.mesh.v1alpha1.MeshConfig.protocol_detection_timeout":
		return anyMillis
	case "istio.mesh.v1alpha1.PrivateKeyProvider.CryptoMb.poll_delay", "istio.mesh.v1alpha1.PrivateKeyProvider.QAT.poll_delay":
		return positiveTime
	case "ConnectionPoolSettings.HTTPSettings.idle_timeout":
		return idleTime
	case "ConnectionPoolSettings.TCPSettings.idle_timeout",
		"LoadBalancerSettings.ConsistentHashLB.HTTPCookie.ttl", "TrafficPolicy.RetryBudget.budget_interval":
		return anyTime
	case "HTTPMatchRequest.port", "L4MatchAttributes.port", "TLSMatchAttributes.port", "HTTPRedirect.port",
		"ServicePort.target_port":
		return portNumber
	case "Percent.value", "HTTPFaultInjection.Delay.percent", "HTTPRoute.mirror_percent",
		"OutlierDetection.max_ejection_percent", "OutlierDetection.min_health_percent",
		"WarmupConfiguration.minimum_percent", "TrafficPolicy.RetryBudget.percent":
		return percentage
	case "WorkloadEntry.labels", "Subset.labels", "HTTPMatchRequest.source_labels", "L4MatchAttributes.source_labels",
		"TLSMatchAttributes.source_labels":
		return labelSet
	case "WorkloadSelector.labels", "istio.type.v1beta1.WorkloadSelector.match_labels":
		return selectorSet
	case "WorkloadEntry.ports":
		return portMap
	case "WarmupConfiguration.aggression":
		return notNegative
	case "OutlierDetection.outlier_detection_http_error_codes":
		return statusCode
	case "ServiceEntry.hosts", "ServiceEntry.ports":
		return atMost256
	case "ServiceEntry.endpoints", "TrafficPolicy.port_level_settings":
		return atMost4096
	case "ServiceEntry.addresses":
		return length64
	case "WorkloadEntry.address", "ServicePort.name", "ServicePort.protocol":
		return length256
	case "WorkloadEntry.service_account":
		return length253
	case "WorkloadEntry.network", "WorkloadEntry.locality":
		return length2048
	}
	if m := f.Message(); m != nil && m.FullName() == "google.protobuf.Duration" {
		if strings.HasPrefix(string(f.FullName()), "istio.mesh.") {
			return anyTime // zero switches most of them off
		}
		return positiveTime
	}
	return anyShape
}

// NotZero returns why a field must not be zero, although it may be omitted; "" if it may be zero.
func NotZero(f protoreflect.FieldDescriptor) string {
	if shapeOf(f) == portNumber {
		return checkPort(0)
	}
	return ""
}

// shapes applies the rules to all fields that are set in a message, in order.
func (c *checker) shapes(p *document.Path, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		at := p.Field(f.JSONName())
		rule := shapeOf(f)
		switch v := m.Get(f); {
		case f.IsMap():
			c.mapShapes(at, v.Map(), f, rule)
		case f.IsList():
			c.listShapes(at, v.List(), f, rule)
		default:
			c.shape(at, v, f, rule)
		}
	}
}

func (c *checker) listShapes(p *document.Path, l protoreflect.List, f protoreflect.FieldDescriptor, rule shape) {
	limit := 0
	switch rule {
	case atMost256, length64:
		limit = 256
	case atMost4096:
		limit = 4096
	}
	if limit > 0 && l.Len() > limit {
		c.fail(p, "has %d entries, the limit is %d; split the object", l.Len(), limit)
	}
	for i := range l.Len() {
		c.shape(p.At(i), l.Get(i), f, rule)
	}
}

// mapLimit returns the maximum number of entries of a map.
func mapLimit(f protoreflect.FieldDescriptor, rule shape) int {
	switch {
	case rule == portMap:
		return 128
	case f.FullName() == "istio.type.v1beta1.WorkloadSelector.match_labels":
		return 4096
	case rule == labelSet, rule == selectorSet:
		return 256
	}
	return math.MaxInt
}

func (c *checker) mapShapes(p *document.Path, m protoreflect.Map, f protoreflect.FieldDescriptor, rule shape) {
	if limit := mapLimit(f, rule); m.Len() > limit {
		c.fail(p, "has %d entries, the limit is %d", m.Len(), limit)
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
			if strings.Contains(key+v.String(), "*") {
				c.fail(at, "labels are selected by exact value, without wildcards")
				continue
			}
			c.rule(at, ObjectLabel(key, v.String()))
		case labelSet:
			c.rule(at, ObjectLabel(key, v.String()))
		case portMap:
			switch {
			case len(key) == maxLabel: // the schema has the limit one lower than names have
				c.fail(at, "%s has %d characters, the limit is %d", document.Quote(key), len(key), maxLabel-1)
			case c.rule(at, checkName(key)):
				c.port(at, uint32(v.Uint()))
			}
		default:
			c.shape(at, v, f.MapValue(), anyShape)
		}
	}
}

// shape checks one value and everything in it.
func (c *checker) shape(p *document.Path, v protoreflect.Value, f protoreflect.FieldDescriptor, rule shape) {
	switch rule {
	case positiveTime, anyTime, idleTime, positiveMillis, anyMillis:
		c.timeShape(p, v.Message(), rule)
		return
	case portNumber:
		c.port(p, uint32(v.Uint()))
		return
	case percentage:
		if n := numeric(v); n < 0 || n > 100 {
			c.fail(p, "must be from 0 to 100, not %v", n)
		}
		return
	case notNegative:
		if n := numeric(v); n < 0 {
			c.fail(p, "must not be negative, but is %v", n)
		}
		return
	case statusCode:
		if n := numeric(v); n < 100 || n > 599 {
			c.fail(p, "must be an HTTP status from 100 to 599, not %v", n)
		}
		return
	case length64, length253, length256, length2048:
		limit := map[shape]int{length64: 64, length253: 253, length256: 256, length2048: 2048}[rule]
		if n := len(v.String()); n > limit {
			c.fail(p, "has %d characters, the limit is %d", n, limit)
		}
		return
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		if f.Message().ParentFile().Package() != "google.protobuf" {
			c.shapes(p, v.Message())
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if v.Int() < 0 {
			c.fail(p, "must not be negative, but is %d", v.Int())
		}
	}
}

func (c *checker) timeShape(p *document.Path, m protoreflect.Message, rule shape) {
	t, ok := m.Interface().(*durationpb.Duration)
	if !ok {
		return
	}
	d := t.AsDuration()
	switch {
	case (rule == positiveTime || rule == positiveMillis) && d < time.Millisecond:
		c.fail(p, "must be 1ms at least, not %v; remove it for the default", d)
	case d < 0:
		c.fail(p, "must not be negative, but is %v", d)
	case (rule == positiveMillis || rule == anyMillis) && d%time.Millisecond != 0:
		c.fail(p, "must be whole milliseconds, not %v", d)
	case rule == idleTime && d < time.Millisecond:
		c.warn(p, "API servers refuse less than 1ms, and this is %v", d)
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
