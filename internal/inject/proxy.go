package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	healthPort  = 15021
	metricsPort = 15090
	healthPath  = "/healthz/ready"
	// tokenSeconds is how long a token is valid with which a proxy asks for certificates. The kubelet renews it.
	tokenSeconds = 43200

	clusterVariable = "ISTIO_META_CLUSTER_ID"
	networkVariable = "ISTIO_META_NETWORK"
)

// arguments returns the command line of the agent.
func (j *job) arguments(role string) []string {
	g := j.values.Global
	args := []string{
		"proxy", role, "--domain", "$(POD_NAMESPACE).svc." + g.Proxy.ClusterDomain,
		"--proxyLogLevel=" + annotated(j.pod, logLevelAnnotation, Text(g.Proxy.LogLevel)),
		"--proxyComponentLogLevel=" + annotated(j.pod, componentsAnnotation, Text(g.Proxy.ComponentLogLevel)),
		j.agentLevel(),
	}
	if port := g.STS.ServicePort; port != "" && port != "0" {
		args = append(args, "--stsPort="+string(port))
	}
	if g.LogAsJSON {
		args = append(args, "--log_as_json")
	}
	if path := g.Proxy.OutlierLogPath; path != "" && role == "sidecar" {
		args = append(args, "--outlierLogPath="+path)
	}
	if j.statusPort != j.config.GetStatusPort() {
		args = append(args, "--statusPort="+strconv.Itoa(int(j.statusPort)))
	}
	return args
}

func (j *job) agentLevel() string {
	return "--log_output_level=" + annotated(j.pod, agentLogAnnotation, Text(j.values.Global.Logging.Level))
}

// image returns the image of a container: the annotation names it, or it is NAME of the hub of the values with their tag. kind is the
// type of the image, a suffix of the tag.
func (j *job) image(name, kind string) string {
	if own, ok := j.pod.Annotations[imageAnnotation]; ok {
		if strings.ContainsAny(own, "/:") {
			return own
		}
		name = cmp.Or(own, name)
	}
	if strings.Contains(name, "/") {
		return name
	}
	g := j.values.Global
	tag := cmp.Or(string(g.Tag), j.injector.config.Tag, "latest")
	if kind = cmp.Or(j.pod.Annotations[imageTypeAnnotation], kind, g.Variant); kind != "" {
		for _, known := range []string{"-distroless", "-debug"} {
			tag = strings.TrimSuffix(tag, known)
		}
		if kind != "default" {
			tag += "-" + kind
		}
	}
	return cmp.Or(g.Hub, defaultHub) + "/" + name + ":" + tag
}

func (j *job) proxyImage() string {
	return j.image(j.values.Global.Proxy.Image, j.config.GetImage().GetImageType())
}

// environment returns the variables that every proxy has. more goes between these and the ones that users choose.
func (j *job) environment(more ...corev1.EnvVar) ([]corev1.EnvVar, error) {
	text, err := proxyJSON(j.config)
	if err != nil {
		return nil, err
	}
	ports, err := j.ports()
	if err != nil {
		return nil, err
	}
	g := j.values.Global
	owner := j.request.Owner
	service := "istiod"
	if revision := j.injector.config.Revision; revision != "" {
		service += "-" + revision
	}
	domain := cmp.Or(j.injector.config.Mesh.GetTrustDomain(), "cluster.local")
	env := []corev1.EnvVar{
		{Name: "PILOT_CERT_PROVIDER", Value: g.PilotCertProvider},
		{Name: "CA_ADDR", Value: cmp.Or(g.CAAddress, service+"."+g.IstioNamespace+".svc:15012")},
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("INSTANCE_IP", "status.podIP"),
		field("SERVICE_ACCOUNT", "spec.serviceAccountName"), field("HOST_IP", "status.hostIP"), field("ISTIO_META_NODE_NAME", "spec.nodeName"),
		{Name: "PROXY_CONFIG", Value: text},
		{Name: "ISTIO_META_POD_PORTS", Value: ports},
		{Name: "ISTIO_META_APP_CONTAINERS", Value: strings.Join(j.applications(), ",")},
		{Name: clusterVariable, Value: j.cluster},
		{Name: networkVariable, Value: j.network},
		{Name: "ISTIO_META_WORKLOAD_NAME", Value: cmp.Or(j.pod.Labels[workloadLabel], owner.Name)},
		{Name: "ISTIO_META_OWNER", Value: owner.ID()},
		{Name: "ISTIO_META_MESH_ID", Value: cmp.Or(g.MeshID, domain)},
		{Name: "TRUST_DOMAIN", Value: domain},
		{Name: "COMPLIANCE_POLICY", Value: j.injector.config.Compliance},
	}
	if j.injector.config.Mesh.GetInboundTrafficPolicy().GetMode() == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		env = append(env, corev1.EnvVar{Name: "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", Value: "true"})
	}
	env = slices.DeleteFunc(append(env, more...), func(e corev1.EnvVar) bool {
		return e.Value == "" && e.ValueFrom == nil && e.Name != "ISTIO_META_APP_CONTAINERS"
	})
	if j.traces() {
		env = append(env, j.traceAttributes())
	}
	env, err = j.datadog(env)
	if err != nil {
		return nil, err
	}
	return setAll(env, j.config.ProxyMetadata), nil
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func limit(name, of string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse("0")}}}
}

// limits are the variables by which agent and Go runtime learn the limits of the container.
func limits() []corev1.EnvVar {
	return []corev1.EnvVar{limit("ISTIO_CPU_LIMIT", "limits.cpu"), limit("GOMEMLIMIT", "limits.memory")}
}

// applications returns the names of the application's containers.
func (j *job) applications() (names []string) {
	for _, c := range j.pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// ports returns the ports of all containers as JSON in the order in which the user wrote them, also ports that the user adds to the proxy.
func (j *job) ports() (string, error) {
	list := []corev1.ContainerPort{}
	containers := slices.Concat(j.pod.Spec.Containers, j.own.Containers)
	if j.own.First {
		containers = slices.Concat(j.own.Containers, j.pod.Spec.Containers)
	}
	for _, c := range containers {
		list = append(list, c.Ports...)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encoding the ports: %w", err)
	}
	return string(b), nil
}

// datadog adds the variables of an annotation if the tracer is Datadog's.
func (j *job) datadog(env []corev1.EnvVar) ([]corev1.EnvVar, error) {
	text, ok := j.pod.Annotations[datadogAnnotation]
	if !ok || j.values.Global.Proxy.Tracer != "datadog" {
		return env, nil
	}
	var variables map[string]Text
	if err := json.Unmarshal([]byte(text), &variables); err != nil {
		return nil, refuse(datadogAnnotation, "%s is no JSON object of variables: %v", quote(text), err)
	}
	plain := map[string]string{}
	for name, value := range variables {
		if !isVariable(name) {
			return nil, refuse(datadogAnnotation, "no environment variable can have the name %s", quote(name))
		}
		plain[name] = string(value)
	}
	return setAll(env, plain), nil
}

// traces reports whether a provider of traces wants attributes by the conventions of OpenTelemetry.
func (j *job) traces() bool {
	return slices.ContainsFunc(j.injector.config.Mesh.GetExtensionProviders(), func(p *meshconfig.MeshConfig_ExtensionProvider) bool {
		return p.GetOpentelemetry().GetServiceAttributeEnrichment() == meshconfig.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS
	})
}

// traceAttributes returns the variable with the attributes of the service, which annotations of the pod may set.
func (j *job) traceAttributes() corev1.EnvVar {
	const prefix = "resource.opentelemetry.io/"
	namespace := cmp.Or(j.pod.Namespace, "default")
	version, container := "", ""
	if list := j.pod.Spec.Containers; len(list) > 0 {
		version, container = imageVersion(list[0].Image), list[0].Name
	}
	var list []string
	for _, a := range []struct{ name, value string }{
		{"service.namespace", namespace},
		{"service.version", version},
		{"service.instance.id", namespace + ".$(POD_NAME)." + container},
	} {
		if value := cmp.Or(j.pod.Annotations[prefix+a.name], a.value); value != "" {
			list = append(list, a.name+"="+strings.NewReplacer(",", "%2C", "=", "%3D").Replace(value))
		}
	}
	return corev1.EnvVar{Name: "OTEL_RESOURCE_ATTRIBUTES", Value: strings.Join(list, ",")}
}

// imageVersion returns the tag and the digest of an image.
func imageVersion(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag != "" && digest != "" {
		return tag + "@" + digest
	}
	return cmp.Or(tag, digest)
}

// probed reports whether the kubelet asks the agent if the proxy is ready: a status port of 0, of the annotation or of the values, says no.
func (j *job) probed() bool {
	return strings.TrimSpace(annotated(j.pod, statusPortAnnotation, j.values.Global.Proxy.StatusPort)) != "0"
}

// readiness returns the probes of the proxy: the startup probe is asked often at the beginning, so that the application does not wait long.
func (j *job) readiness(port int32, annotations bool) *corev1.Probe {
	p := j.values.Global.Proxy
	pod := j.pod
	if !annotations {
		pod = &corev1.Pod{}
	}
	return &corev1.Probe{
		ProbeHandler:        httpGet(healthPath, port),
		InitialDelaySeconds: numbered(pod, delayAnnotation, p.ReadinessDelay),
		PeriodSeconds:       numbered(pod, periodAnnotation, p.ReadinessPeriod),
		FailureThreshold:    numbered(pod, failuresAnnotation, p.ReadinessFailures),
		TimeoutSeconds:      3,
	}
}

func httpGet(path string, port int32) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}
}

// resources returns the resources in annotations if there is one, otherwise the resources of the values.
func (j *job) resources() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	found := false
	for _, a := range []struct {
		annotation string
		name       corev1.ResourceName
		list       *corev1.ResourceList
	}{
		{cpuAnnotation, corev1.ResourceCPU, &r.Requests}, {memoryAnnotation, corev1.ResourceMemory, &r.Requests},
		{cpuLimitAnnotation, corev1.ResourceCPU, &r.Limits}, {memoryLimitAnnotation, corev1.ResourceMemory, &r.Limits},
	} {
		text, ok := j.pod.Annotations[a.annotation]
		if !ok {
			continue
		}
		found = true
		if *a.list == nil {
			*a.list = corev1.ResourceList{}
		}
		(*a.list)[a.name], _ = resource.ParseQuantity(text) // checked already
	}
	if !found {
		return *j.values.Global.Proxy.Resources.DeepCopy()
	}
	return r
}

// canonical returns the labels with the names of the service in telemetry.
func (j *job) canonical() map[string]string {
	l := j.pod.Labels
	name := cmp.Or(l[nameLabel], l["app.kubernetes.io/name"], l["app"], j.request.Owner.Name)
	const longest = 63 // of the value of a label
	if len(name) > longest {
		name = strings.TrimRight(name[:longest], "-_.")
	}
	return map[string]string{nameLabel: name, versionLabel: cmp.Or(l[versionLabel], l["app.kubernetes.io/version"], l["version"], "latest")}
}

// defaults returns the annotations that every injected pod has: the revision, and the container that kubectl chooses.
func (j *job) defaults() map[string]string {
	out := map[string]string{revisionName: j.injector.revision()}
	if names := j.applications(); len(names) > 0 {
		for _, a := range []string{logsAnnotation, containerAnnotation} {
			if _, ok := j.pod.Annotations[a]; !ok {
				out[a] = names[0]
			}
		}
	}
	return out
}

// compactJSON removes blanks, which protobuf adds at random.
func compactJSON(b []byte) (string, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return "", fmt.Errorf("encoding JSON: %w", err)
	}
	return out.String(), nil
}
