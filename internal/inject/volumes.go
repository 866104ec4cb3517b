package inject

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Paths in the container of the proxy.
const (
	dataPath      = "/var/lib/istio/data"
	proxyPath     = "/etc/istio/proxy"
	customPath    = "/etc/istio/custom-bootstrap"
	customFile    = customPath + "/custom_bootstrap.json"
	secretsPath   = "/var/run/secrets/"
	certsPath     = "/etc/certs/"
	gkeProvider   = "GkeWorkloadCertificate"
	istiodRoots   = "istiod"
	legacyAccount = "default"
)

// volume is a volume of the proxy and where it is mounted. One without a name is left out.
type volume struct {
	corev1.Volume

	path     string
	readOnly bool
}

// mount mounts volumes into the container of the proxy.
func (j *job) mount(c *corev1.Container, t *part, list ...volume) {
	for _, v := range list {
		if v.Name == "" {
			continue
		}
		t.volumes = append(t.volumes, v.Volume)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.path, ReadOnly: v.readOnly})
	}
}

func empty() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

func memory() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
}

func configMap(name string, optional bool) corev1.VolumeSource {
	s := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	if optional {
		s.Optional = &optional
	}
	return corev1.VolumeSource{ConfigMap: s}
}

func (j *job) workloadSocket() volume {
	return volume{corev1.Volume{Name: "workload-socket", VolumeSource: empty()}, secretsPath + "workload-spiffe-uds", false}
}

func (j *job) credentialSocket() volume {
	return volume{corev1.Volume{Name: "credential-socket", VolumeSource: empty()}, secretsPath + "credential-uds", false}
}

func (j *job) workloadCertificates() volume {
	const at = secretsPath + "workload-spiffe-credentials"
	if j.values.Global.CAName == gkeProvider {
		source := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "workloadcertificates.security.cloud.google.com"}}
		return volume{corev1.Volume{Name: "gke-workload-certificate", VolumeSource: source}, at, true}
	}
	return volume{corev1.Volume{Name: "workload-certs", VolumeSource: empty()}, at, false}
}

// roots are the roots that vouch for the control plane, if its own authority does. They are in a ConfigMap of each namespace, or in a
// ClusterTrustBundle.
func (j *job) roots() volume {
	if j.values.Global.PilotCertProvider != istiodRoots {
		return volume{}
	}
	name := j.values.Global.TrustBundleName
	source := configMap(cmp.Or(name, "istio-ca-root-cert"), false)
	if isTrue(string(j.values.Pilot.Env["ENABLE_CLUSTER_TRUST_BUNDLE_API"])) {
		bundle := "istio.io:istiod-ca:" + cmp.Or(name, "root-cert")
		source = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: &bundle, Path: "root-cert.pem"},
		}}}}
	}
	return volume{corev1.Volume{Name: "istiod-ca-cert", VolumeSource: source}, secretsPath + "istio", false}
}

// revocations are the lists of certificates that the authority has revoked.
func (j *job) revocations() volume {
	if j.values.Global.PilotCertProvider != istiodRoots {
		return volume{}
	}
	return volume{corev1.Volume{Name: "istio-ca-crl", VolumeSource: configMap("istio-ca-crl", true)}, secretsPath + "istio/crl", false}
}

func data() volume {
	return volume{corev1.Volume{Name: "istio-data", VolumeSource: empty()}, dataPath, false}
}

// envoy holds Envoy's bootstrap and the sockets between agent and Envoy.
func (j *job) envoy() volume {
	return volume{corev1.Volume{Name: "istio-envoy", VolumeSource: memory()}, proxyPath, false}
}

// bootstrap is the ConfigMap of the user that is merged over the bootstrap.
func (j *job) bootstrap() volume {
	name := j.pod.Annotations[bootstrapAnnotation]
	if name == "" {
		return volume{}
	}
	return volume{corev1.Volume{Name: "custom-bootstrap-volume", VolumeSource: configMap(name, false)}, customPath, false}
}

func (j *job) bootstrapVariable() corev1.EnvVar {
	if j.pod.Annotations[bootstrapAnnotation] == "" {
		return corev1.EnvVar{}
	}
	return corev1.EnvVar{Name: "ISTIO_BOOTSTRAP_OVERRIDE", Value: customFile}
}

// token is the token with which the proxy asks for its certificate.
func (j *job) token() volume {
	seconds := int64(tokenSeconds)
	source := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: j.values.Global.SDS.Token.Audience, ExpirationSeconds: &seconds, Path: "istio-token"},
	}}}}
	return volume{corev1.Volume{Name: "istio-token", VolumeSource: source}, secretsPath + "tokens", false}
}

// certificates is a Secret of the service account with certificates, if values want it.
func (j *job) certificates() volume {
	if !j.values.Global.MountMtlsCerts {
		return volume{}
	}
	account, optional := j.pod.Spec.ServiceAccountName, true
	if account == "" {
		account = legacyAccount
	}
	source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "istio." + account, Optional: &optional}}
	return volume{corev1.Volume{Name: "istio-certs", VolumeSource: source}, certsPath, true}
}

// collector is a Secret with the authorities of the collector of the tracer Lightstep, if the tracing speaks TLS.
func (j *job) collector() volume {
	file := j.config.GetTracing().GetTlsSettings().GetCaCertificates()
	if j.values.Global.Proxy.Tracer != "lightstep" || path.Dir(file) == "." || path.Dir(file) == "/" {
		return volume{}
	}
	optional := true
	source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "lightstep.cacert", Optional: &optional}}
	return volume{corev1.Volume{Name: "lightstep-certs", VolumeSource: source}, path.Dir(file), true}
}

// podinfo are labels and annotations of the pod, which change while it runs.
func podinfo() volume {
	file := func(name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}}
	}
	source := corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{file("labels"), file("annotations")}}}
	return volume{corev1.Volume{Name: "istio-podinfo", VolumeSource: source}, "/etc/istio/pod", false}
}

// userVolumes adds the volumes and mounts of the annotations.
func (j *job) userVolumes(c *corev1.Container, t *part) error {
	volumes, err := fromAnnotation(j.pod, userVolumeAnnotation, func(v *corev1.Volume) *string { return &v.Name })
	if err != nil {
		return err
	}
	mounts, err := fromAnnotation(j.pod, userMountAnnotation, func(m *corev1.VolumeMount) *string { return &m.Name })
	if err != nil {
		return err
	}
	t.volumes = append(t.volumes, volumes...)
	for _, m := range mounts {
		if !path.IsAbs(m.MountPath) {
			return refuse(userMountAnnotation, "the mount of %s needs a mountPath that begins with a slash", quote(m.Name))
		}
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(o corev1.VolumeMount) bool { return path.Clean(o.MountPath) == path.Clean(m.MountPath) })
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
	return nil
}

// fromAnnotation reads an annotation with JSON: an object by the names of volumes, or a list whose entries have names.
func fromAnnotation[T any](pod *corev1.Pod, annotation string, name func(*T) *string) (list []T, err error) {
	text, ok := pod.Annotations[annotation]
	if !ok {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	byName := map[string]T{}
	if isList := strings.HasPrefix(strings.TrimSpace(text), "["); isList {
		err = d.Decode(&list)
	} else {
		err = d.Decode(&byName)
	}
	if err != nil {
		return nil, refuse(annotation, "it is no JSON object by names of volumes, and no list of objects with names: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		entry := byName[key]
		*name(&entry) = cmp.Or(*name(&entry), key)
		list = append(list, entry)
	}
	for n := range list {
		if *name(&list[n]) == "" {
			return nil, refuse(annotation, "entry %d has no name; write the name of a volume", n+1)
		}
	}
	return list, nil
}

func statusText(port int32) string { return strconv.Itoa(int(port)) }
