// Package probe redirects the probes and hooks of an application to the agent, and gives them back. It changes only the pod that it gets. The package
// starts no goroutines.
package probe

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Variable says to the agent which probes and hooks it runs for the kubelet, by the paths at which it is asked.
const Variable = "ISTIO_KUBE_APP_PROBERS"

// prober is a probe or hook in that variable.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

func (p prober) handler() corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket, GRPC: p.GRPC}
}

// eachProbe calls f for the probes and hooks of the application's containers that stay running, with the path at which the agent answers for
// each. What f does to the handler, it does to the pod. proxy is the name of the container that has none of the application.
func eachProbe(pod *corev1.Pod, proxy string, f func(c *corev1.Container, path string, handler *corev1.ProbeHandler, timeout int32)) {
	visit := func(c *corev1.Container) {
		for _, p := range []struct {
			name  string
			probe *corev1.Probe
		}{{"readyz", c.ReadinessProbe}, {"livez", c.LivenessProbe}, {"startupz", c.StartupProbe}} {
			if p.probe != nil {
				f(c, "/app-health/"+c.Name+"/"+p.name, &p.probe.ProbeHandler, p.probe.TimeoutSeconds)
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for _, h := range []struct {
			name string
			hook *corev1.LifecycleHandler
		}{{"prestopz", c.Lifecycle.PreStop}, {"poststartz", c.Lifecycle.PostStart}} {
			if h.hook == nil {
				continue
			}
			handler := corev1.ProbeHandler{Exec: h.hook.Exec, HTTPGet: h.hook.HTTPGet, TCPSocket: h.hook.TCPSocket}
			f(c, "/app-lifecycle/"+c.Name+"/"+h.name, &handler, 0)
			h.hook.HTTPGet, h.hook.TCPSocket = handler.HTTPGet, handler.TCPSocket
		}
	}
	for n := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[n]; c.Name != proxy {
			visit(c)
		}
	}
	for n := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[n]
		if always := c.RestartPolicy; c.Name != proxy && always != nil && *always == corev1.ContainerRestartPolicyAlways {
			visit(c)
		}
	}
}

// Redirect redirects probes and hooks of the application to the agent, because the kubelet has no certificate of the mesh. It returns
// the value of the variable with the original ones; empty if there are none. proxy is the name of the proxy's container.
func Redirect(pod *corev1.Pod, proxy string, port int32) (string, error) {
	original := map[string]prober{}
	eachProbe(pod, proxy, func(c *corev1.Container, path string, h *corev1.ProbeHandler, timeout int32) {
		p, ok := redirectable(c, *h, port)
		if !ok {
			return
		}
		p.TimeoutSeconds = timeout
		original[path] = p
		get := &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}
		if h.HTTPGet != nil {
			get.HTTPHeaders = h.HTTPGet.HTTPHeaders // for proxies between the kubelet and the agent
		}
		*h = corev1.ProbeHandler{HTTPGet: get}
	})
	if len(original) == 0 {
		return "", nil
	}
	b, err := json.Marshal(original)
	if err != nil {
		return "", fmt.Errorf("encoding the probes: %w", err)
	}
	return string(b), nil
}

// Restore gives the containers the probes and hooks that the value of the variable has, where they are redirected.
func Restore(pod *corev1.Pod, proxy, value string) {
	var original map[string]prober
	if json.Unmarshal([]byte(value), &original) != nil {
		return
	}
	eachProbe(pod, proxy, func(_ *corev1.Container, path string, handler *corev1.ProbeHandler, _ int32) {
		if p, ok := original[path]; ok && handler.HTTPGet != nil && handler.HTTPGet.Path == path {
			*handler = p.handler()
		}
	})
}

// redirectable returns the probe that the agent would run. A probe that runs a command, calls another host, names a port that the container does
// not have, or is the agent's already, stays with the kubelet.
func redirectable(c *corev1.Container, h corev1.ProbeHandler, status int32) (prober, bool) {
	number := func(p intstr.IntOrString) (intstr.IntOrString, bool) {
		if p.Type == intstr.Int {
			return p, p.IntVal != status && p.IntVal > 0
		}
		for _, port := range c.Ports {
			if port.Name == p.StrVal {
				return intstr.FromInt32(port.ContainerPort), true
			}
		}
		return p, false
	}
	switch {
	case h.HTTPGet != nil && h.HTTPGet.Host == "":
		get, ok := *h.HTTPGet, false
		get.Port, ok = number(get.Port)
		return prober{HTTPGet: &get}, ok
	case h.TCPSocket != nil && h.TCPSocket.Host == "":
		port, ok := number(h.TCPSocket.Port)
		return prober{TCPSocket: &corev1.TCPSocketAction{Port: port}}, ok
	case h.GRPC != nil:
		return prober{GRPC: h.GRPC}, h.GRPC.Port != status
	}
	return prober{}, false
}
