package inject

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"

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

// roots are the roots that vouch for the control plane, if its own authority does.
func (j *job) roots() volume {
	if j.values.Global.PilotCertProvider != istiodRoots {
		return volume{}
	}
	return volume{corev1.Volume{Name: "istiod-ca-cert", VolumeSource: configMap("istio-ca-root-cert", false)}, secretsPath + "istio", false}
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

// podinfo are labels and annotations of the pod, which change while it runs.
func podinfo() volume {
	file := func(name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}}
	}
	source := corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{file("labels"), file("annotations")}}}
	return volume{corev1.Volume{Name: "istio-podinfo", VolumeSource: source}, "/etc/istio/pod", false}
}

// userVolumes adds the volumes and mounts of the annotations: JSON objects by the names of volumes.
func (j *job) userVolumes(c *corev1.Container, t *part) error {
	sources, err := fromAnnotation[corev1.VolumeSource](j.pod, userVolumeAnnotation)
	if err != nil {
		return err
	}
	mounts, err := fromAnnotation[corev1.VolumeMount](j.pod, userMountAnnotation)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		t.volumes = append(t.volumes, corev1.Volume{Name: name, VolumeSource: sources[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[name]
		m.Name = name
		if !path.IsAbs(m.MountPath) {
			return refuse(userMountAnnotation, "the mount of %s needs a mountPath that begins with a slash", quote(name))
		}
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(o corev1.VolumeMount) bool { return path.Clean(o.MountPath) == path.Clean(m.MountPath) })
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
	return nil
}

// fromAnnotation reads an annotation with a JSON object whose values are of one type.
func fromAnnotation[T any](pod *corev1.Pod, name string) (map[string]T, error) {
	text, ok := pod.Annotations[name]
	if !ok {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var out map[string]T
	if err := d.Decode(&out); err != nil {
		return nil, refuse(name, "it is no JSON object by names of volumes: %v", err)
	}
	return out, nil
}

func statusText(port int32) string { return strconv.Itoa(int(port)) }
