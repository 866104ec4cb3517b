package selection

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/agent/capture/settings"
)

// read reads a pod.
func read(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

const injected = `metadata: {annotations: {sidecar.istio.io/status: "{}"}}`

// TestOf is the table of decisions.
func TestOf(t *testing.T) {
	for _, c := range []struct{ name, pod, reason string }{
		{"sidecar", injected + "\nspec: {initContainers: [{name: istio-validation}], containers: [{name: app}, {name: istio-proxy}]}", ""},
		{"native sidecar", injected + "\nspec: {initContainers: [{name: istio-validation}, {name: istio-proxy, restartPolicy: Always}], containers: [{name: app}]}", ""},
		{"outside the mesh", "spec: {containers: [{name: app}]}", "the pod has no proxy"},
		{"only named like one", "spec: {initContainers: [{name: istio-validation}], containers: [{name: istio-proxy}]}", "the pod has no proxy"},
		{"host network", injected + "\nspec: {hostNetwork: true, initContainers: [{name: istio-validation}], containers: [{name: istio-proxy}]}", "the pod uses the network of its node"},
		{"captures itself", injected + "\nspec: {initContainers: [{name: istio-init}, {name: istio-validation}], containers: [{name: istio-proxy}]}", "the pod captures its traffic with the container istio-init"},
		{"interception mode NONE, or a gateway", injected + "\nspec: {containers: [{name: istio-proxy}]}", "the pod has no container istio-validation"},
		{"gRPC without a proxy", injected + "\nspec: {containers: [{name: app}]}", "the pod has no proxy"},
	} {
		if captured, reason := Of(read(t, c.pod)); reason != c.reason || captured != (c.reason == "") {
			t.Errorf("%s: captured %v, %q, want the reason %q", c.name, captured, reason, c.reason)
		}
	}
}

// TestFlags: each flag of the capture is either of the pod or of the plugin.
func TestFlags(t *testing.T) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.NewFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		_, plugin := fromPlugin[f.Name]
		if pod := slices.Contains(fromPod, f.Name); pod == plugin {
			t.Errorf("say in selection.go who decides --%s, the pod or the plugin", f.Name)
		}
	})
}

// pod returns a captured pod with arguments and variables of its validation container.
func pod(args, env []string) *corev1.Pod {
	c := corev1.Container{Name: Validation, Args: args}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{c}}}
}

// TestOwnFlags: what a pod says about the network namespace, or about what to do, has no effect, whether by flag or by variable.
func TestOwnFlags(t *testing.T) {
	for name, p := range map[string]*corev1.Pod{
		"flags": pod(strings.Fields("istio-iptables -b * --run-validation --skip-rule-apply -n --cleanup-only --network-namespace /proc/1/ns/net --force-apply --probe-timeout 9h"), nil),
		"variables": pod([]string{"istio-iptables", "-b", "*"}, []string{
			"NETWORK_NAMESPACE=/proc/1/ns/net", "DRY_RUN=true", "SKIP_RULE_APPLY=true", "RUN_VALIDATION=true", "CLEANUP_ONLY=true", "FORCE_APPLY=true", "CNI_MODE=false", "RECONCILE=false",
		}),
	} {
		flags, err := Flags(p, "/proc/self/fd/9")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		o, _, _, err := flags.CleanupOptions() // the options without the facts about a host
		if err != nil || flags.NetworkNamespace() != "/proc/self/fd/9" || o.DryRun || o.SkipApply || o.CleanupOnly || o.Force || !o.OwnLock || !o.Reconcile {
			t.Errorf("%s: the network namespace %s, %+v, %v", name, flags.NetworkNamespace(), o, err)
		}
	}
}

// TestRules: arguments and variables of the container are the settings of the capture.
func TestRules(t *testing.T) {
	p := pod(strings.Fields("/usr/local/bin/istio-iptables -p 16001 -z 16006 -u 9 -m TPROXY -b 80 --log_output_level=default:info"), []string{"ISTIO_META_DNS_CAPTURE=true"})
	flags, err := Flags(p, "")
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := flags.Resolve(settings.Host{Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	if s.OutboundPort != 16001 || s.InboundPort != 16006 || s.UIDs[0].From != 9 || s.Mode != settings.TProxy || s.InboundPorts.List[0].From != 80 {
		t.Errorf("settings: %+v", s)
	}
	if !s.DNS.All {
		t.Error("queries to some servers only: the agent does not know the servers of a pod")
	}
}

// TestRefused: a container that is not the one that injection makes.
func TestRefused(t *testing.T) {
	for want, args := range map[string]string{
		"it does not run istio-iptables":       "sleep 5",
		"unknown flag: --later":                "istio-iptables --later",
		`"rm" is no flag of istio-iptables`:    "istio-iptables rm",
		"the container istio-validation: flag": "istio-iptables -p",
	} {
		if _, err := Flags(pod(strings.Fields(args), nil), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
