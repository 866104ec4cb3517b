package inject

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestHuge: pods as large as API servers take them do not hold up the injection of others.
func TestHuge(t *testing.T) {
	i, _ := prepared(t, "{}")
	const many = 10_000
	env, volumes, containers := []corev1.EnvVar{}, []corev1.Volume{}, []corev1.Container{}
	for n := range many {
		env = append(env, corev1.EnvVar{Name: fmt.Sprint("V", n), Value: "1"})
		volumes = append(volumes, corev1.Volume{Name: fmt.Sprint("v", n)})
		containers = append(containers, corev1.Container{Name: fmt.Sprint("c", n)})
	}
	for _, c := range []struct {
		name, template string
		change         func(p *corev1.Pod)
	}{
		{"variables of the proxy", sidecarTemplate, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: proxyName, Image: autoImage, Env: env})
		}},
		{"variables", grpcAgentTemplate, func(p *corev1.Pod) { p.Spec.Containers[0].Env = env }},
		{"volumes", sidecarTemplate, func(p *corev1.Pod) { p.Spec.Volumes = volumes }},
		{"containers", sidecarTemplate, func(p *corev1.Pod) { p.Spec.Containers = containers }},
		{"containers with gRPC", grpcAgentTemplate, func(p *corev1.Pod) { p.Spec.Containers = containers[:many/4] }},
		{"init containers", sidecarTemplate, func(p *corev1.Pod) { p.Spec.InitContainers = containers }},
	} {
		p := pod(map[string]string{templatesAnnotation: c.template})
		c.change(p)
		begin := time.Now()
		after := injected(t, i, p)
		one := time.Since(begin)
		if _, err := Patch(p, after); err != nil {
			t.Error(err)
		}
		all := time.Since(begin)
		t.Logf("%s: %v, with the patch %v", c.name, one, all)
		if all > 10*time.Second {
			t.Errorf("%s: injection took %v, with the patch %v", c.name, one, all)
		}
	}
}
