package node

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Variables returns the environment of an Envoy with this node: the agent's own, and what the workload is, which listeners from the control
// plane read for metrics and traces. What the agent's environment says of the service in traces stays.
func Variables(n *corev3.Node, environ []string) []string {
	text := func(key string) string { return n.GetMetadata().GetFields()[key].GetStringValue() }
	labels := map[string]string{}
	for name, v := range n.GetMetadata().GetFields()["LABELS"].GetStructValue().GetFields() {
		labels[name] = v.GetStringValue()
	}
	is := mesh.IdentityOf(mesh.LabelsOf(labels), "")
	is.Workload, is.Service = cmp.Or(text("WORKLOAD_NAME"), is.Workload), cmp.Or(is.Service, text("WORKLOAD_NAME"))
	header := ""
	if text(certificatesKey) == otherAuthority {
		header = peerHeader(is, text("NAME"), text("NAMESPACE"), text("CLUSTER_ID"))
	}
	list := slices.Clip(environ)
	for _, v := range []struct{ name, value string }{
		{envoy.EnvNamespace, text("NAMESPACE")}, {envoy.EnvCluster, text("CLUSTER_ID")}, {envoy.EnvMesh, text("MESH_ID")},
		{envoy.EnvWorkload, is.Workload}, {envoy.EnvApp, is.App}, {envoy.EnvVersion, is.Version},
		{envoy.EnvCanonicalService, is.Service}, {envoy.EnvCanonicalRevision, is.Revision},
		{envoy.EnvUnknown, "unknown"}, {envoy.EnvPeerHeader, header},
	} {
		if v.value != "" {
			list = append(list, v.name+"="+v.value)
		}
	}
	const attributes, datadog = "OTEL_RESOURCE_ATTRIBUTES", "DD_SERVICE"
	own := variable(environ, attributes)
	if !strings.Contains(","+own, ",service.name=") {
		name := n.GetCluster()
		if strings.Contains(","+own, ",service.namespace=") {
			name = conventional(n.GetMetadata(), labels, name)
		}
		list = append(list, attributes+"="+strings.TrimPrefix(own+",service.name="+name, ","))
	}
	if variable(environ, datadog) == "" {
		list = append(list, datadog+"="+n.GetCluster())
	}
	return list
}

// conventional returns the name of a service by the conventions of OpenTelemetry for Kubernetes, which the pods of a mesh with
// serviceAttributeEnrichment follow: the injection has set their other attributes. other is the name if nothing says one.
// See https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/#service-attributes.
func conventional(metadata *structpb.Struct, labels map[string]string, other string) string {
	fields := metadata.GetFields()
	annotation := fields["ANNOTATIONS"].GetStructValue().GetFields()["resource.opentelemetry.io/service.name"].GetStringValue()
	name := cmp.Or(annotation, labels["app.kubernetes.io/name"], fields["WORKLOAD_NAME"].GetStringValue(), fields["NAME"].GetStringValue(), other)
	return strings.NewReplacer(",", "%2C", "=", "%3D").Replace(name)
}

// variable returns the value of a variable; empty if there is none.
func variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			value = text
		}
	}
	return value
}
