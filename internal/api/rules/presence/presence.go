// Package presence checks which fields of an object are written, even if they are empty. In a message an empty field and an omitted
// one are the same, so rules for messages do not see the difference.
//
// The package is pure.
package presence

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// exclusive lists groups of fields that exclude each other, even if they are empty.
func exclusive(message protoreflect.FullName) [][]string {
	switch strings.TrimPrefix(string(message), "istio.") {
	case "security.v1beta1.AuthorizationPolicy", "security.v1beta1.RequestAuthentication", "telemetry.v1alpha1.Telemetry", "extensions.v1alpha1.WasmPlugin":
		return [][]string{{"selector", "targetRef", "targetRefs"}}
	case "extensions.v1alpha1.TrafficExtension":
		return [][]string{{"selector", "targetRefs"}}
	case "networking.v1alpha3.EnvoyFilter":
		return [][]string{{"workloadSelector", "targetRefs"}}
	case "networking.v1alpha3.ServiceEntry":
		return [][]string{{"workloadSelector", "endpoints"}}
	case "networking.v1alpha3.ServerTLSSettings":
		return [][]string{{"credentialNames", "tlsCertificates"}, {"credentialNames", "credentialName"}}
	case "security.v1beta1.JWTRule":
		return [][]string{{"jwks", "jwksUri"}}
	}
	return nil
}

// notEmpty lists the fields that must not be written without content.
func notEmpty(message protoreflect.FullName) []string {
	switch strings.TrimPrefix(string(message), "istio.") {
	case "security.v1beta1.PeerAuthentication":
		return []string{"portLevelMtls"}
	case "security.v1beta1.Rule":
		return []string{"from", "to"}
	case "security.v1beta1.JWTRule":
		return []string{"issuer", "jwksUri"}
	case "networking.v1alpha3.ServerTLSSettings":
		return []string{"credentialNames", "tlsCertificates"}
	case "extensions.v1alpha1.WasmPlugin", "extensions.v1alpha1.WasmConfig":
		return []string{"imagePullSecret", "pluginName"}
	case "telemetry.v1alpha1.MetricSelector":
		return []string{"customMetric"}
	}
	return nil
}

// Check checks which fields of a message are written, for document.Options.
func Check(d protoreflect.MessageDescriptor, v *document.Value, fail func(field, reason string)) {
	written := func(field string) *document.Value {
		if m := v.Find(field); m != nil && m.Value.Kind != document.Null {
			return m.Value
		}
		return nil
	}
	for _, fields := range exclusive(d.FullName()) {
		first := ""
		for _, field := range fields {
			switch {
			case written(field) == nil:
			case first == "":
				first = field
			default:
				fail(field, "excludes "+first+", which is written as well, even if one of them is empty; keep one of them")
			}
		}
	}
	for _, field := range notEmpty(d.FullName()) {
		if w := written(field); w != nil && w.Scalar == "" && len(w.Items)+len(w.Members) == 0 {
			fail(field, "must not be empty; give it a value, or leave it out")
		}
	}
	switch strings.TrimPrefix(string(d.FullName()), "istio.") {
	case "networking.v1alpha3.ServiceEntry":
		if r := v.Get("resolution").Text(); written("endpoints") != nil && (r == "" || r == "NONE") {
			fail("endpoints", "resolution NONE sends traffic to where the application sent it; remove endpoints, or use STATIC or DNS")
		}
	case "networking.v1alpha3.WorkloadEntry":
		if written("ports") != nil && strings.HasPrefix(v.Get("address").Text(), "unix://") {
			fail("ports", "a socket has no ports; remove them")
		}
	case "extensions.v1alpha1.EnvVar":
		from := written("valueFrom")
		if written("value") != nil && from.Text() == "HOST" {
			fail("value", "excludes valueFrom: HOST, which takes the value from the proxy's own environment; keep one of them")
		}
	case "telemetry.v1alpha1.MetricsOverrides.TagOverride":
		if written("value") != nil && v.Get("operation").Text() == "REMOVE" {
			fail("value", "a tag that is removed has no value; leave it out, or use the operation UPSERT")
		}
	}
}
