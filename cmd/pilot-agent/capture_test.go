package main

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/inject"
)

// TestInjectedCapture: the program accepts the arguments that injection gives to the init container, also after the name that the image calls.
func TestInjectedCapture(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"usual":    nil,
		"ranges":   {"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8", "traffic.sidecar.istio.io/excludeOutboundPorts": "9999"},
		"tproxy":   {"sidecar.istio.io/interceptionMode": "TPROXY"},
		"loglevel": {"sidecar.istio.io/agentLogLevel": "all:debug"},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := inject.New(inject.Config{Values: inject.DefaultValues(), Tag: "1.0"})
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
			pod.Name, pod.Namespace, pod.Annotations = "web", "shop", annotations
			result, err := i.Inject(inject.Request{Pod: pod})
			if err != nil {
				t.Fatal(err)
			}
			tried := 0
			for _, c := range result.Pod.Spec.InitContainers {
				if c.Name != "istio-init" {
					continue
				}
				tried++
				var out, log bytes.Buffer
				command := root(config.New(nil))
				command.SetOut(&out)
				command.SetErr(&log)
				command.SetArgs(append(c.Args, "--dry-run"))
				if err := command.ExecuteContext(t.Context()); err != nil || out.Len() == 0 {
					t.Errorf("%q: %v\n%s%s", c.Args, err, &out, &log)
				}
			}
			if tried != 1 {
				t.Errorf("%d init containers: %v", tried, result.Pod.Spec.InitContainers)
			}
		})
	}
}
