package inject

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/tree"
)

// BenchmarkHuge injects pods with lists as long as API servers take them. The time grows with the length of a list, not with its square.
func BenchmarkHuge(b *testing.B) {
	i, _ := prepared(b, "{}")
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
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: proxyName, Image: "auto", Env: env})
		}},
		{"variables", grpcAgentTemplate, func(p *corev1.Pod) { p.Spec.Containers[0].Env = env }},
		{"volumes", sidecarTemplate, func(p *corev1.Pod) { p.Spec.Volumes = volumes }},
		{"containers", sidecarTemplate, func(p *corev1.Pod) { p.Spec.Containers = containers }},
		{"containers with gRPC", grpcAgentTemplate, func(p *corev1.Pod) { p.Spec.Containers = containers[:many/4] }},
		{"init containers", sidecarTemplate, func(p *corev1.Pod) { p.Spec.InitContainers = containers }},
	} {
		p := pod(map[string]string{templatesAnnotation: c.template})
		c.change(p)
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				r, err := i.Inject(Request{Pod: p})
				if err != nil {
					b.Fatal(err)
				}
				if _, err = tree.Patch(p, r.Pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
