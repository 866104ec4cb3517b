package inject

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// grpcAgent is the template of applications whose gRPC library does the work of a proxy: the agent gives it certificates and the
// configuration of the control plane, and no Envoy runs.
func (j *job) grpcAgent() (part, error) {
	t := part{labels: j.canonical(), annotations: j.defaults(), pullSecrets: true}
	t.annotations[rewriteAnnotation] = "false" // the application serves its own probes
	env, err := j.environment(
		corev1.EnvVar{Name: "ISTIO_META_GENERATOR", Value: "grpc"},
		corev1.EnvVar{Name: "OUTPUT_CERTS", Value: dataPath})
	if err != nil {
		return t, err
	}
	env = setAll(env, map[string]string{"ISTIO_META_DNS_CAPTURE": "false", "DISABLE_ENVOY": "true"})
	status := j.statusPort
	if status == 0 {
		status = j.config.GetStatusPort()
	}
	c := corev1.Container{
		Name: proxyName, Image: j.proxyImage(), ImagePullPolicy: j.values.Global.ImagePullPolicy,
		Args: j.arguments("sidecar"), Env: setEnv(env, corev1.EnvVar{Name: "GRPC_XDS_BOOTSTRAP", Value: bootstrapPath}),
		Lifecycle: j.values.Global.Proxy.Lifecycle.DeepCopy(), Resources: j.resources(),
		Ports: []corev1.ContainerPort{{Name: "mesh-metrics", ContainerPort: status, Protocol: corev1.ProtocolTCP}},
	}
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{
			"pilot-agent", "wait", "--url=http://localhost:" + statusText(status) + healthPath}}}}
	}
	if j.probed() {
		c.ReadinessProbe = j.readiness(status, true)
	}
	channel := volume{corev1.Volume{Name: "istio-xds", VolumeSource: memory()}, proxyPath, false}
	certificates := j.workloadCertificates()
	j.mount(&c, &t, j.workloadSocket(), certificates, j.roots(), data(), channel, j.token(), j.certificates(), podinfo())
	if err := j.userVolumes(&c, &t); err != nil {
		return t, err
	}
	j.application(&t, map[string]string{"GRPC_XDS_EXPERIMENTAL_SECURITY_SUPPORT": "true", "GRPC_XDS_BOOTSTRAP": bootstrapPath}, data(), channel, certificates)
	t.containers = append(t.containers, c)
	return t, nil
}

// bootstrapPath is where the agent writes the bootstrap for gRPC libraries.
const bootstrapPath = proxyPath + "/grpc-bootstrap.json"

// application adds variables and mounts to the application's containers. What a container has already stays.
func (j *job) application(t *part, env map[string]string, volumes ...volume) {
	for _, c := range j.pod.Spec.Containers {
		add := corev1.Container{Name: c.Name}
		add.Env = setAll(nil, env)
		for _, v := range volumes {
			add.VolumeMounts = append(add.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.path, ReadOnly: v.readOnly})
		}
		if merged, err := tree.Overlay(add, c); err == nil {
			t.containers = append(t.containers, merged)
		}
	}
}

// grpcSimple is the template of applications whose gRPC library speaks to the control plane without an agent, in plain text: an init container
// writes the library's bootstrap. It is for experiments.
func (j *job) grpcSimple() part {
	const folder, file = "/var/lib/grpc/data/", "/var/lib/grpc/data/bootstrap.json"
	shared := volume{corev1.Volume{Name: "grpc-io-proxyless-bootstrap", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, folder, false}
	type m = map[string]any
	bootstrap, err := json.Marshal(m{
		"xds_servers": []m{{
			"server_uri": "dns:///istiod." + j.values.Global.IstioNamespace + ".svc:15010", "channel_creds": []m{{"type": "insecure"}}, "server_features": []string{"xds_v3"},
		}},
		"node": m{"id": "sidecar~$(INSTANCE_IP)~$(POD_NAME).$(POD_NAMESPACE)~cluster.local", "metadata": m{"GENERATOR": "grpc"}},
	})
	if err != nil {
		return part{}
	}
	t := part{annotations: map[string]string{rewriteAnnotation: "false", revisionName: j.injector.revision()}}
	t.initContainers = []corev1.Container{{
		Name: grpcInitName, Image: "busybox:1.28",
		// The kubelet puts the facts about the pod into the variable; the shell only copies it.
		Command: []string{"sh", "-c", `printf '%s' "$BOOTSTRAP" > ` + file},
		Env: []corev1.EnvVar{
			field("INSTANCE_IP", "status.podIP"), field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
			{Name: "ISTIO_NAMESPACE", Value: j.values.Global.IstioNamespace}, {Name: "BOOTSTRAP", Value: string(bootstrap)},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: shared.Name, MountPath: folder}},
	}}
	t.volumes = []corev1.Volume{shared.Volume}
	j.application(&t, map[string]string{"GRPC_XDS_BOOTSTRAP": file, "GRPC_GO_LOG_VERBOSITY_LEVEL": "99", "GRPC_GO_LOG_SEVERITY_LEVEL": "info"}, shared)
	return t
}
