package podrunner

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func parsePod(t *testing.T, text string) *v1.Pod {
	t.Helper()
	object := new(v1.Pod)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	object.Name, object.Namespace = "p", "ns"
	return object
}

func TestResolvConf(t *testing.T) {
	w := &worker{node: &Node{options: Options{ClusterDNS: netip.MustParseAddr("10.1.0.10"), Domain: "cluster.local"}}}
	const cluster = "nameserver 10.1.0.10\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
	for _, test := range []struct{ spec, want string }{
		{`{}`, cluster},
		{`{dnsPolicy: ClusterFirst}`, cluster},
		{`{dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true}`, cluster},
		{`{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a, b], options: [{name: ndots, value: "2"}, {name: edns0}]}}`,
			"nameserver 1.1.1.1\nsearch a b\noptions ndots:2 edns0\n"},
		{`{dnsPolicy: ClusterFirst, dnsConfig: {nameservers: [10.1.0.10, 1.1.1.1], searches: [a], options: [{name: ndots, value: "1"}]}}`,
			"nameserver 10.1.0.10\nnameserver 1.1.1.1\nsearch ns.svc.cluster.local svc.cluster.local cluster.local a\noptions ndots:1\n"},
	} {
		got, err := w.resolvConf(parsePod(t, "spec: "+test.spec))
		if err != nil || got != test.want {
			t.Errorf("%s: %v, got\n%s", test.spec, err, got)
		}
	}
}

func TestHosts(t *testing.T) {
	for _, test := range []struct{ spec, name, lines string }{
		{`{}`, "p", "10.0.0.2\tp\nfd00::2\tp\n"},
		{`{hostname: h, subdomain: s}`, "h", "10.0.0.2\th.s.ns.svc.cluster.local\th\nfd00::2\th.s.ns.svc.cluster.local\th\n"},
		{`{hostname: h, subdomain: s, setHostnameAsFQDN: true}`, "h.s.ns.svc.cluster.local", "10.0.0.2\th.s.ns.svc.cluster.local\th\n"},
		{`{hostAliases: [{ip: 1.2.3.4, hostnames: [a, b]}]}`, "p", "# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"},
	} {
		object := parsePod(t, "spec: "+test.spec)
		name := hostname(object, "cluster.local")
		text := hosts(object, name, "cluster.local", []string{"10.0.0.2", "fd00::2"})
		if name != test.name || !strings.Contains(text, test.lines) || !strings.HasPrefix(text, "# Kubernetes-managed hosts file.\n") {
			t.Errorf("%s: name %q, hosts\n%s", test.spec, name, text)
		}
	}
	long := parsePod(t, `{}`)
	long.Name = strings.Repeat("a", 62) + "-more"
	if got := hostname(long, "cluster.local"); got != strings.Repeat("a", 62) {
		t.Errorf("a long name becomes %q", got)
	}
}

// A patch must replace our part of the API server's status and leave the other parts, whatever was there before.
func TestPatch(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	before := v1.Pod{Status: v1.PodStatus{
		QOSClass: v1.PodQOSBurstable, Reason: "Old", Message: "old", PodIP: "10.0.0.9", PodIPs: []v1.PodIP{{IP: "10.0.0.9"}},
		Conditions: []v1.PodCondition{
			{Type: "Gate", Status: v1.ConditionTrue},
			{Type: v1.PodScheduled, Status: v1.ConditionTrue},
			{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "no"},
		},
		InitContainerStatuses: []v1.ContainerStatus{{Name: "gone"}},
		ContainerStatuses:     []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "X"}}}},
	}}
	status := v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &at, PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}},
		Conditions: []v1.PodCondition{
			{Type: "Gate", Status: v1.ConditionFalse}, // what a kubelet has read is not its to write
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at},
		},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c", Ready: true, Started: ptr.To(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}}},
	}
	original, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(patchOf(&status, "u", []string{"10.0.0.1"}))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, v1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var after v1.Pod
	if err := json.Unmarshal(merged, &after); err != nil {
		t.Fatal(err)
	}
	got := after.Status
	conditions := map[v1.PodConditionType]v1.PodCondition{}
	for _, condition := range got.Conditions {
		conditions[condition.Type] = condition
	}
	ready := conditions[v1.PodReady]
	for what, ok := range map[string]bool{
		"its class stays":             got.QOSClass == v1.PodQOSBurstable,
		"reason and message go":       got.Reason == "" && got.Message == "",
		"addresses are replaced":      len(got.PodIPs) == 2 && got.PodIPs[0].IP == "10.0.0.2" && got.PodIP == "10.0.0.2",
		"the node's address is there": got.HostIP == "10.0.0.1" && len(got.HostIPs) == 1,
		"others' conditions stay":     conditions["Gate"].Status == v1.ConditionTrue && conditions[v1.PodScheduled].Status == v1.ConditionTrue,
		"ready has no old reason":     ready.Status == v1.ConditionTrue && ready.Reason == "" && ready.Message == "",
		"there is one of each kind":   len(got.Conditions) == 3,
		"containers are replaced":     len(got.ContainerStatuses) == 1 && got.ContainerStatuses[0].State.Waiting == nil,
		"containers that are none go": len(got.InitContainerStatuses) == 0,
		"the pod is named by its UID": after.UID == "u",
	} {
		if !ok {
			t.Errorf("not so: %s; the status is %+v", what, got)
		}
	}
}
