// Package selection decides which pods the CNI plugin captures, and how.
//
// A captured pod was injected, and has the container istio-validation: its arguments are a command line of `pilot-agent istio-iptables`, and the plugin
// installs the rules that they describe. The same container keeps the pod from starting where the rules are missing. That is why a pod without
// this container is never captured, and why a plugin that cannot decide may let any pod pass.
//
// Any user who creates pods writes their arguments. Only flags that describe rules count. The plugin sets the flags about the network namespace
// and about the job of the command. The package reads pods, and starts no goroutines.
package selection

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// Names that injection gives.
const (
	Validation       = "istio-validation"
	proxyName        = "istio-proxy"
	initName         = "istio-init"
	statusAnnotation = "sidecar.istio.io/status"
	command          = "istio-iptables"
)

// NotCaptured is the exit code of the validation container where connections are not captured.
const NotCaptured = 126

// Of reports whether the plugin captures the traffic of a pod, and if not, why.
func Of(pod *corev1.Pod) (captured bool, reason string) {
	_, injected := pod.Annotations[statusAnnotation]
	switch {
	case pod.Spec.HostNetwork:
		return false, "the pod uses the network of its node"
	case !injected || find(pod, proxyName) == nil:
		return false, "the pod has no proxy"
	case find(pod, initName) != nil:
		return false, "the pod captures its traffic with the container " + initName
	case find(pod, Validation) == nil:
		return false, "the pod has no container " + Validation
	}
	return true, ""
}

// find returns a container of the pod.
func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// fromPod are the flags that the pod decides: the rules. TestFlags fails for a flag that is in neither list.
var fromPod = []string{
	"envoy-port", "inbound-capture-port", "inbound-tunnel-port", "proxy-uid", "proxy-gid", "istio-inbound-interception-mode", "istio-inbound-ports",
	"istio-local-exclude-ports", "istio-exclude-interfaces", "istio-service-cidr", "istio-service-exclude-cidr", "istio-outbound-ports",
	"istio-local-outbound-ports-exclude", "kube-virt-interfaces", "istio-inbound-tproxy-mark", "istio-inbound-tproxy-route-table", "redirect-dns",
	"drop-invalid", "dual-stack", "native-nftables", "force-iptables-binary",
}

// fromPlugin are the flags that the plugin decides, and their values. A pod may have these flags; its values do not count.
var fromPlugin = map[string]string{
	"dry-run": "false", "skip-rule-apply": "false", "run-validation": "false", "cleanup-only": "false", "force-apply": "false",
	"iptables-probe-port": "15002", "probe-timeout": "5s", "iptables-trace-logging": "false",
	// Nothing but the plugin makes these rules in a pod that it captures: rules that differ are of the same pod, before it was changed.
	"reconcile": "true",
	// The lock of iptables is on the network namespace: pods that start at the same time do not wait for each other.
	"cni-mode": "true",
	// The resolv.conf of the pod is not there yet: queries to any server are captured.
	"capture-all-dns": "false", "network-namespace": "",
}

// Flags returns the flags of the capture of a pod in a network namespace, which has a path. Of must have chosen the pod.
func Flags(pod *corev1.Pod, netns string) (*settings.Flags, error) {
	flags, err := parse(find(pod, Validation), netns)
	if err != nil {
		return nil, fmt.Errorf("the container %s: %w; inject the pod again, or leave the container as injection makes it", Validation, err)
	}
	return flags, nil
}

func parse(c *corev1.Container, netns string) (*settings.Flags, error) {
	words := slices.Concat(c.Command, c.Args)
	at := slices.IndexFunc(words, func(w string) bool { return path.Base(w) == command })
	if at < 0 {
		return nil, errors.New("it does not run " + command)
	}
	set := pflag.NewFlagSet(command, pflag.ContinueOnError)
	set.Usage = func() {}
	flags := settings.NewFlags(set)
	set.String("log_output_level", "", "of the container")
	set.Bool("log_as_json", false, "of the container")
	if err := set.Parse(words[at+1:]); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag of %s", set.Arg(0), command)
	}
	for name, value := range fromPlugin { // before the environment, whose variables do not change flags that are set
		if err := set.Set(name, value); err != nil {
			return nil, err
		}
	}
	var environ []string
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			environ = append(environ, v.Name+"="+v.Value)
		}
	}
	err := flags.FromEnvironment(environ)
	if dns, _ := set.GetBool("redirect-dns"); dns {
		err = errors.Join(err, set.Set("capture-all-dns", "true"))
	}
	return flags, errors.Join(err, set.Set("network-namespace", netns))
}
