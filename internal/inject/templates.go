package inject

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// template adds what a template injects to the parts.
func (j *job) template(name string, t *part) error {
	var add part
	var err error
	switch name {
	case sidecarTemplate:
		add, err = j.sidecar()
	case gatewayTemplate:
		add, err = j.gateway()
	case grpcAgentTemplate:
		add, err = j.grpcAgent()
	case grpcSimpleTemplate:
		add = j.grpcSimple()
	}
	if err != nil {
		return err
	}
	return t.join(add)
}

// join lays another template over this one.
func (t *part) join(o part) error {
	for k, v := range o.labels {
		setIn(&t.labels, k, v)
	}
	for k, v := range o.annotations {
		setIn(&t.annotations, k, v)
	}
	place := func(list *[]corev1.Container, c corev1.Container) error {
		if former := containerOf(*t, c.Name); former != nil {
			merged, err := tree.Overlay(*former, c)
			*former = merged
			return err
		}
		*list = append(*list, c)
		return nil
	}
	for _, c := range o.initContainers {
		if err := place(&t.initContainers, c); err != nil {
			return err
		}
	}
	for _, c := range o.containers {
		if err := place(&t.containers, c); err != nil {
			return err
		}
	}
	t.volumes = append(t.volumes, o.volumes...) // the first of a name counts
	t.pullSecrets = t.pullSecrets || o.pullSecrets
	if o.security != nil {
		t.security = o.security
	}
	return nil
}

// sidecar is the template of workloads: a proxy, and the capture of the pod's traffic.
func (j *job) sidecar() (part, error) {
	t := part{labels: j.canonical(), annotations: j.defaults(), pullSecrets: true}
	t.labels[tlsModeLabel] = "istio"
	if mode := j.pod.Labels[tlsModeLabel]; mode != "" {
		t.labels[tlsModeLabel] = mode
	}
	if isTrue(j.config.GetProxyMetadata()["ISTIO_META_ENABLE_HBONE"]) {
		t.labels[tunnelLabel] = "http"
		if mode := j.pod.Labels[tunnelLabel]; mode != "" {
			t.labels[tunnelLabel] = mode
		}
	}
	if err := j.pluginAnnotations(t.annotations); err != nil {
		return t, err
	}
	env, err := j.environment(append(limits(), corev1.EnvVar{Name: "ISTIO_META_INTERCEPTION_MODE", Value: j.mode}, j.bootstrapVariable())...)
	if err != nil {
		return t, err
	}
	c := corev1.Container{
		Name: proxyName, Image: j.proxyImage(), ImagePullPolicy: j.values.Global.ImagePullPolicy,
		Args: j.arguments("sidecar"), Env: env, Lifecycle: j.lifecycle(), SecurityContext: j.security(), Resources: j.resources(),
		Ports: []corev1.ContainerPort{metrics()},
	}
	if j.probed() {
		c.ReadinessProbe = j.readiness(healthPort, true)
		if s := j.values.Global.Proxy.StartupProbe; s.Enabled {
			c.StartupProbe = &corev1.Probe{ProbeHandler: httpGet(healthPath, healthPort), PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: s.FailureThreshold}
		}
	}
	j.mount(&c, &t, j.workloadSocket(), j.credentialSocket(), j.workloadCertificates(), j.roots(), j.revocations(), data(), j.bootstrap(), j.envoy(),
		j.token(), j.certificates(), podinfo(), j.collector())
	if err := j.userVolumes(&c, &t); err != nil {
		return t, err
	}
	if capture := j.capture(); capture != nil {
		t.initContainers = append(t.initContainers, *capture)
	}
	if j.native {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		t.initContainers = append(t.initContainers, c)
	} else {
		t.containers = append(t.containers, c)
	}
	return t, nil
}

func metrics() corev1.ContainerPort {
	return corev1.ContainerPort{Name: "http-envoy-prom", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP}
}

// lifecycle returns the hooks of a sidecar: the hooks of the values, or a hook that holds the application, or a hook by which a native sidecar
// drains while the application still runs.
func (j *job) lifecycle() *corev1.Lifecycle {
	exec := func(words ...string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}
	}
	switch l := j.values.Global.Proxy.Lifecycle; {
	case l != nil:
		return l.DeepCopy()
	case j.native && j.statusPort != 0:
		return &corev1.Lifecycle{PreStop: exec("pilot-agent", "request", "--debug-port="+strconv.Itoa(int(j.statusPort)), "POST", "drain")}
	case !j.native && j.holds():
		return &corev1.Lifecycle{PostStart: exec("pilot-agent", "wait")}
	}
	return nil
}

// security returns the security context of a sidecar. TPROXY and ports below 1024 need root with few capabilities.
func (j *job) security() *corev1.SecurityContext {
	p := j.values.Global.Proxy
	root := j.mode == "TPROXY"
	var add []corev1.Capability
	if root {
		add = append(add, "NET_ADMIN")
	}
	if annotated(j.pod, bindAnnotation, p.CapNetBindService) == "true" {
		root = true
		add = append(add, "NET_BIND_SERVICE")
	}
	uid, gid, privileged := j.uid, j.gid, p.Privileged
	if root {
		uid, gid = 0, proxyID
	}
	if isTrue(j.config.GetProxyMetadata()["IPTABLES_TRACE_LOGGING"]) { // the proxy reads the kernel's log of packets
		root, privileged = true, true
		uid, gid, add = 0, j.gid, []corev1.Capability{"NET_ADMIN"}
	}
	return securityContext(privileged, uid, gid, !root, true, add, p.SeccompProfile)
}

func securityContext(privileged bool, uid, gid int64, nonRoot, readOnly bool, add []corev1.Capability, seccomp *corev1.SeccompProfile) *corev1.SecurityContext {
	escalation := privileged
	s := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &escalation, Privileged: &privileged, RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: &nonRoot,
		ReadOnlyRootFilesystem: &readOnly, Capabilities: &corev1.Capabilities{Add: add, Drop: []corev1.Capability{"ALL"}},
	}
	if seccomp != nil && *seccomp != (corev1.SeccompProfile{}) {
		s.SeccompProfile = seccomp
	}
	return s
}

// gateway is the template of gateways: the container is a router, and nothing is captured. It may listen on ports below 1024 without
// privileges.
func (j *job) gateway() (part, error) {
	t := part{labels: j.canonical(), annotations: j.defaults(), pullSecrets: true}
	env, err := j.environment(append(limits(), corev1.EnvVar{Name: "ISTIO_META_INTERCEPTION_MODE", Value: j.config.GetInterceptionMode().String()})...)
	if err != nil {
		return t, err
	}
	uid, gid := j.uid, j.gid
	c := corev1.Container{
		Name: proxyName, Image: j.proxyImage(), ImagePullPolicy: j.values.Global.ImagePullPolicy,
		Args: j.arguments("router"), Env: env, Lifecycle: j.values.Global.Proxy.Lifecycle.DeepCopy(), Ports: []corev1.ContainerPort{metrics()},
		SecurityContext: &corev1.SecurityContext{RunAsUser: &uid, RunAsGroup: &gid},
		ReadinessProbe:  j.readiness(healthPort, false),
	}
	j.mount(&c, &t, j.workloadSocket(), j.credentialSocket(), j.workloadCertificates(), j.roots(), data(), j.envoy(), j.token(), j.certificates(), podinfo())
	t.containers = append(t.containers, c)
	t.security = map[string]any{}
	for k, v := range j.values.Gateways.SecurityContext {
		t.security[k] = v
	}
	if len(t.security) == 0 {
		t.security["sysctls"] = []any{map[string]any{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}}
	}
	if s := j.values.Gateways.SeccompProfile; s != nil && *s != (corev1.SeccompProfile{}) {
		if t.security["seccompProfile"], err = tree.Of(s); err != nil {
			return t, err
		}
	}
	return t, nil
}
