// Package register makes a machine known to the API server as a node, and says again and again that it lives. It has one
// goroutine, Run's.
package register

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"golang.org/x/sys/unix"
)

// Node is the description of a node for the API server.
type Node struct {
	Client    kubernetes.Interface
	Name      string
	Labels    map[string]string
	Addresses []string // internal IPs
	PodCIDRs  []string
	Port      int32 // of the kubelet's API
	Log       *slog.Logger
}

const (
	leaseSeconds = 40
	renewEvery   = 4 * time.Second
	lookEvery    = 3 // renewals between looks at the node object
)

// maxPods bounds what the scheduler gives us.
const maxPods = 500

// Capacity is what the node offers.
func Capacity() v1.ResourceList {
	memory := int64(1 << 30)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = int64(info.Totalram) * int64(info.Unit)
	}
	return v1.ResourceList{
		// More than there is: pods of tests request the resources they would need elsewhere.
		v1.ResourceCPU:              *resource.NewQuantity(int64(max(64, runtime.NumCPU())), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(max(memory, 256<<30), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(256<<30, resource.BinarySI),
		v1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
}

// Run registers the node and keeps it alive until the context ends. Ready is called once, when the API server knows it.
func (n *Node) Run(ctx context.Context, ready func()) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	known := false
	fast := time.NewTimer(0) // until it is known, try often: a node often starts together with its API server
	defer fast.Stop()
	for count := 0; ; count++ {
		err := n.round(ctx, !known || count%lookEvery == 0)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.Log.Warn("node: not known to the API server", "node", n.Name, "error", err)
		case !known:
			known = true
			ready()
		}
		if !known {
			fast.Reset(200 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return
		case <-fast.C:
		case <-ticker.C:
		}
	}
}

// round renews the lease and, if look is set, sees that the node object is as it ought to be. An API server that accepts
// requests and does not answer them must not cost more than one round.
func (n *Node) round(ctx context.Context, look bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*renewEvery)
	defer cancel()
	if look {
		if err := n.assert(ctx); err != nil {
			return err
		}
	}
	return n.renew(ctx)
}

// assert corrects the node object if it is not as desired.
func (n *Node) assert(ctx context.Context) error {
	nodes := n.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, n.object(), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if len(node.Spec.PodCIDRs) == 0 {
		if err := n.patch(ctx, types.StrategicMergePatchType, map[string]any{"spec": map[string]any{"podCIDR": n.PodCIDRs[0], "podCIDRs": n.PodCIDRs}}); err != nil {
			return err
		}
	}
	for _, condition := range node.Status.Conditions {
		fresh := time.Since(condition.LastHeartbeatTime.Time) < 5*time.Minute
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue && fresh {
			return nil
		}
	}
	// Not a strategic merge: that would merge addresses by their kind, and two have the same kind.
	return n.patch(ctx, types.MergePatchType, map[string]any{"status": n.status(node)}, "status")
}

func (n *Node) patch(ctx context.Context, kind types.PatchType, change map[string]any, subresources ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, n.Name, kind, text, metav1.PatchOptions{}, subresources...); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) object() *v1.Node {
	labels := map[string]string{
		v1.LabelHostname: n.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
	}
	for key, value := range n.Labels {
		labels[key] = value
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       v1.NodeSpec{PodCIDR: n.PodCIDRs[0], PodCIDRs: n.PodCIDRs},
	}
}

func (n *Node) status(old *v1.Node) v1.NodeStatus {
	now := metav1.Now()
	status := v1.NodeStatus{
		Capacity: Capacity(), Allocatable: Capacity(),
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: n.Port}},
		NodeInfo:        info(n.Name),
		Addresses:       []v1.NodeAddress{{Type: v1.NodeHostName, Address: n.Name}},
	}
	for _, address := range n.Addresses {
		status.Addresses = append(status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: address})
	}
	for _, condition := range []v1.NodeCondition{
		{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "podrunner does not look"},
		{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "podrunner does not look"},
		{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "podrunner does not look"},
		{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "podrunner runs pods as local processes"},
	} {
		condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
		for _, before := range old.Status.Conditions {
			if before.Type == condition.Type && before.Status == condition.Status {
				condition.LastTransitionTime = before.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, condition)
	}
	for _, condition := range old.Status.Conditions {
		if !slices.ContainsFunc(status.Conditions, func(c v1.NodeCondition) bool { return c.Type == condition.Type }) {
			status.Conditions = append(status.Conditions, condition) // of others
		}
	}
	return status
}

func info(name string) v1.NodeSystemInfo {
	info := v1.NodeSystemInfo{
		MachineID: name, SystemUUID: name, BootID: name, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "podrunner://1.0.0", OSImage: "the machine itself",
	}
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		info.KernelVersion = unix.ByteSliceToString(uname.Release[:])
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				info.OSImage = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return info
}

// renew says that the node lives.
func (n *Node) renew(ctx context.Context) error {
	leases := n.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: v1.NamespaceNodeLease},
			Spec:       coordination.LeaseSpec{HolderIdentity: ptr.To(n.Name), LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
		}, metav1.CreateOptions{})
	} else if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("lease of node %s: %w", n.Name, err)
	}
	return nil
}
