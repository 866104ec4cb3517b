package inject

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// volumeOf returns a volume of a pod; nil if there is none with this name.
func volumeOf(p *corev1.Pod, name string) *corev1.Volume {
	if n := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); n >= 0 {
		return &p.Spec.Volumes[n]
	}
	return nil
}

// TestUserVolumes: volumes and mounts are a list, as Istio's documentation writes them, or an object by names.
func TestUserVolumes(t *testing.T) {
	i, _ := prepared(t, "{}")
	for _, form := range []struct{ volumes, mounts string }{
		{`[{"name":"my-cert","secret":{"secretName":"cert"}}]`, ` [{"name":"my-cert","mountPath":"/etc/cert","readonly":true},{"name":"my-cert","mountPath":"/b"}]`},
		{`{"my-cert":{"secret":{"secretName":"cert"}}}`, `{"my-cert":{"mountPath":"/etc/cert","readOnly":true},"x":{"name":"my-cert","mountPath":"/b"}}`},
	} {
		after := injected(t, i, pod(map[string]string{userVolumeAnnotation: form.volumes, userMountAnnotation: form.mounts}))
		v, c := volumeOf(after, "my-cert"), containerIn(&after.Spec, proxyName)
		mounts := []corev1.VolumeMount{{Name: "my-cert", MountPath: "/etc/cert", ReadOnly: true}, {Name: "my-cert", MountPath: "/b"}}
		if v == nil || v.Secret == nil || v.Secret.SecretName != "cert" || !slices.Equal(c.VolumeMounts[len(c.VolumeMounts)-2:], mounts) {
			t.Errorf("%s became %v, mounted as %v", form.volumes, v, c.VolumeMounts)
		}
	}
}

// TestTrustBundle: the roots come from a ConfigMap or a ClusterTrustBundle, whose name values may choose.
func TestTrustBundle(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                 "ConfigMap istio-ca-root-cert",
		"{global: {trustBundleName: roots}}": "ConfigMap roots",
		"{pilot: {env: {ENABLE_CLUSTER_TRUST_BUNDLE_API: true}}}":                                 "bundle istio.io:istiod-ca:root-cert",
		"{pilot: {env: {ENABLE_CLUSTER_TRUST_BUNDLE_API: 'true'}}, global: {trustBundleName: r}}": "bundle istio.io:istiod-ca:r",
		"{pilot: {env: {ENABLE_CLUSTER_TRUST_BUNDLE_API: false}}}":                                "ConfigMap istio-ca-root-cert",
	} {
		i, _ := prepared(t, "{values: "+values+"}")
		v := volumeOf(injected(t, i, pod(nil)), "istiod-ca-cert")
		got := ""
		if v.ConfigMap != nil {
			got = "ConfigMap " + v.ConfigMap.Name
		} else if b := v.Projected.Sources[0].ClusterTrustBundle; b.Path == "root-cert.pem" {
			got = "bundle " + *b.Name
		}
		if got != want {
			t.Errorf("%s: the roots are in %q, want %q", values, got, want)
		}
	}
}

// TestNativeAnnotation: each value but false makes the proxy a native sidecar, with a warning unless it is true.
func TestNativeAnnotation(t *testing.T) {
	for _, c := range []struct {
		settings, value  string
		native, warnings bool
	}{
		{"{}", "true", true, false}, {"{}", "yes", true, true}, {"{}", "", false, false}, {"{native: true}", "", true, false}, {"{native: true}", "false", false, false},
	} {
		i, _ := prepared(t, c.settings)
		r, err := i.Inject(Request{Pod: pod(map[string]string{nativeAnnotation: c.value})})
		if err != nil {
			t.Fatal(err)
		}
		native := slices.ContainsFunc(r.Pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == proxyName })
		if native != c.native || len(r.Warnings) > 0 != c.warnings {
			t.Errorf("%s, %q: native is %v, warnings are %q", c.settings, c.value, native, r.Warnings)
		}
	}
}

// TestNoHealthChecks: a status port of 0 in the values leaves out the probes of the proxy. Probes of the application still go through the agent.
func TestNoHealthChecks(t *testing.T) {
	for port, want := range map[string]bool{"0": false, "15020": true} {
		i, _ := prepared(t, "{values: {global: {proxy: {statusPort: "+port+"}}}}")
		for _, template := range []string{sidecarTemplate, grpcAgentTemplate} {
			c := containerIn(&injected(t, i, pod(map[string]string{templatesAnnotation: template})).Spec, proxyName)
			if got := c.ReadinessProbe != nil; got != want || template == sidecarTemplate && (c.StartupProbe != nil) != want {
				t.Errorf("%s, status port %s: probes are %v, %v", template, port, c.ReadinessProbe, c.StartupProbe)
			}
		}
		p := pod(nil)
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: httpGet("/live", 80)}
		if got := injected(t, i, p).Spec.Containers[0].LivenessProbe.HTTPGet.Port.IntVal; got != 15020 {
			t.Errorf("status port %s: the application is probed at %d", port, got)
		}
	}
}

// TestValidationUser: the container that checks the capture runs as what the capture spares, so that its own connections are not captured.
func TestValidationUser(t *testing.T) {
	const openshift = "{openshift: true, values: {pilot: {cni: {enabled: true}}}}"
	namespace := &Namespace{Name: "shop", Annotations: map[string]string{"openshift.io/sa.scc.uid-range": "1000/50"}}
	for mode, want := range map[string]int64{"REDIRECT": 1049, "TPROXY": proxyID} {
		i, _ := prepared(t, openshift)
		r, err := i.Inject(Request{Pod: pod(map[string]string{interceptionAnnotation: mode}), Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		c := containerIn(&r.Pod.Spec, validationName)
		if s := c.SecurityContext; *s.RunAsUser != want || *s.RunAsGroup != want {
			t.Errorf("%s: %d:%d, want %d", mode, *s.RunAsUser, *s.RunAsGroup, want)
		}
	}
}

// TestNetworkLabel: the label names the network of the pod, also if the pod has no container of ours.
func TestNetworkLabel(t *testing.T) {
	i, _ := prepared(t, "{values: {global: {network: net-a}}}")
	for _, template := range []string{sidecarTemplate, gatewayTemplate, grpcAgentTemplate, grpcSimpleTemplate} {
		after := injected(t, i, pod(map[string]string{templatesAnnotation: template}))
		if got := after.Labels[networkLabel]; got != "net-a" {
			t.Errorf("%s: the label is %q", template, got)
		}
	}
	i, _ = prepared(t, "{}")
	if got, labelled := injected(t, i, pod(nil)).Labels[networkLabel]; labelled {
		t.Errorf("without a network, the label is %q", got)
	}
}

// TestPlace: cluster and network of the values count, also if the pod says otherwise in its ProxyConfig or in the proxy's container. Without values the
// pod decides.
func TestPlace(t *testing.T) {
	p := pod(map[string]string{configAnnotation: "proxyMetadata: {ISTIO_META_NETWORK: net-b, OTHER: x}"})
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: proxyName, Image: tree.AutoImage, Env: []corev1.EnvVar{{Name: clusterVariable, Value: "mine"}}})
	for _, c := range []struct{ values, cluster, network, label string }{
		{"{}", "mine", "net-b", ""},
		{"{values: {global: {network: net-a, multiCluster: {clusterName: east}}}}", "east", "net-a", "net-a"},
	} {
		i, _ := prepared(t, c.values)
		after := injected(t, i, p)
		proxy := containerIn(&after.Spec, proxyName)
		cluster, network, label := valueOf(proxy, clusterVariable), valueOf(proxy, networkVariable), after.Labels[networkLabel]
		if cluster != c.cluster || network != c.network || label != c.label || valueOf(proxy, "OTHER") != "x" {
			t.Errorf("%s: cluster %q, network %q, label %q", c.values, cluster, network, label)
		}
	}
}
