package podrunner

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotmesh/pilot/test/podrunner/pod"
)

// reporter writes a pod's status to the API server: always the newest, never one that was written already.
type reporter struct {
	worker *worker

	mu      sync.Mutex
	want    *v1.PodStatus
	written *v1.PodStatus
	version uint64        // of the object that the last write made
	idle    chan struct{} // closed when nothing is being written; nil at first
}

const (
	// gather is how long changes are collected: a container's start is several of them.
	gather = 20 * time.Millisecond
	// A write that failed is tried again, later each time.
	shortestRetry, longestRetry = 200 * time.Millisecond, 5 * time.Second
)

// set takes a status to be written.
func (r *reporter) set(status v1.PodStatus) {
	r.mu.Lock()
	if r.want != nil && equality.Semantic.DeepEqual(*r.want, status) {
		r.mu.Unlock()
		return
	}
	r.want = &status
	r.begin()
}

// begin has the status written, if that is not under way. It is called with the lock, and gives it back.
func (r *reporter) begin() {
	idle := r.idle == nil
	if idle {
		r.idle = make(chan struct{})
	}
	r.mu.Unlock()
	if idle {
		r.worker.spawn(r.write)
	}
}

// observe looks at an object of the API server: it writes this node's part of the status again if others overwrote it. The
// node lifecycle controller does that to pods of a node that it believes lost: it calls them not ready.
func (r *reporter) observe(object *v1.Pod) {
	version, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	if err != nil {
		return // an API server that counts in another way
	}
	r.mu.Lock()
	if r.written == nil || r.idle != nil || version <= r.version || r.written.Phase == object.Status.Phase && sameConditions(r.written.Conditions, object.Status.Conditions) {
		r.mu.Unlock()
		return
	}
	r.written = nil
	r.begin()
}

// sameConditions reports whether the kubelet's conditions of one list have the same status in another.
func sameConditions(mine, theirs []v1.PodCondition) bool {
	for _, condition := range mine {
		same := func(c v1.PodCondition) bool { return c.Type == condition.Type && c.Status == condition.Status }
		if pod.Owned(condition.Type) && !slices.ContainsFunc(theirs, same) {
			return false
		}
	}
	return true
}

// write writes until there is nothing new.
func (r *reporter) write() {
	pause := shortestRetry
	for wait := gather; r.worker.sleep(wait); {
		r.mu.Lock()
		want := r.want
		if want == r.written {
			close(r.idle)
			r.idle = nil
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		version, err := r.patch(want)
		if err != nil {
			if r.worker.ctx.Err() == nil {
				r.worker.node.log.Info("a pod's status is not written yet", "pod", r.worker.pod().Name, "error", err)
			}
			wait, pause = pause, min(2*pause, longestRetry)
			continue
		}
		wait, pause = gather, shortestRetry
		r.mu.Lock()
		r.written, r.version = want, max(r.version, version)
		r.mu.Unlock()
	}
}

// flush waits until the last status is written.
func (r *reporter) flush() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle != nil {
		wait(r.worker.ctx, idle)
	}
}

// patch writes the kubelet's part of the status, whatever else the status has, and returns the resulting version of the object. Its only condition is
// that the pod is the same.
func (r *reporter) patch(status *v1.PodStatus) (uint64, error) {
	w := r.worker
	select {
	case w.node.reports <- struct{}{}:
		defer func() { <-w.node.reports }()
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
	text, err := json.Marshal(patchOf(status, string(w.uid), w.node.hostIPs))
	if err != nil {
		return 0, err
	}
	object := w.pod()
	ctx, cancel := context.WithTimeout(w.ctx, syncTimeout)
	defer cancel()
	written, err := w.node.client.CoreV1().Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the pod is gone, or another has its name: no report is needed
	}
	if err != nil {
		return 0, err
	}
	version, err := strconv.ParseUint(written.ResourceVersion, 10, 64)
	if err != nil {
		return 0, nil // an API server that counts in another way: only observe needs it
	}
	return version, nil
}

// patchOf states everything explicitly: lists are whole, and empty fields are removed.
func patchOf(status *v1.PodStatus, uid string, hostIPs []string) map[string]any {
	var conditions []v1.PodCondition
	for _, condition := range status.Conditions {
		if pod.Owned(condition.Type) {
			conditions = append(conditions, condition)
		}
	}
	patch := map[string]any{
		"observedGeneration": status.ObservedGeneration,
		"phase":              status.Phase,
		"reason":             orNull(status.Reason),
		"message":            orNull(status.Message),
		"startTime":          status.StartTime,
		"conditions":         explicit(conditions),
		"podIP":              orNull(status.PodIP),
		"podIPs":             whole("ip", status.PodIPs, func(ip v1.PodIP) string { return ip.IP }),
	}
	if len(hostIPs) > 0 {
		patch["hostIP"] = hostIPs[0]
		patch["hostIPs"] = whole("ip", hostIPs, func(ip string) string { return ip })
	}
	for name, list := range map[string][]v1.ContainerStatus{
		"initContainerStatuses": status.InitContainerStatuses, "containerStatuses": status.ContainerStatuses, "ephemeralContainerStatuses": status.EphemeralContainerStatuses,
	} {
		patch[name] = nil
		if len(list) > 0 {
			patch[name] = list
		}
	}
	return map[string]any{"metadata": map[string]any{"uid": uid}, "status": patch}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// explicit conditions remove a reason or message that is no longer true.
func explicit(conditions []v1.PodCondition) []map[string]any {
	list := make([]map[string]any, len(conditions))
	for i, c := range conditions {
		list[i] = map[string]any{
			"type": c.Type, "status": c.Status, "reason": orNull(c.Reason), "message": orNull(c.Message),
			"lastTransitionTime": c.LastTransitionTime, "lastProbeTime": nil, "observedGeneration": c.ObservedGeneration,
		}
	}
	return list
}

// whole is a list that replaces the existing one, which a strategic merge would not do by itself.
func whole[T any](key string, list []T, value func(T) string) []map[string]any {
	out := []map[string]any{{"$patch": "replace"}}
	for _, element := range list {
		out = append(out, map[string]any{key: value(element)})
	}
	return out
}

// finish writes the last status and deletes the object: then it is gone from the API server too.
func (w *worker) finish(action pod.Finish) {
	if action.Forget {
		return
	}
	w.report.set(w.machine.Status())
	w.report.flush()
	object := w.pod()
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid}}
	for pause := shortestRetry; ; pause = min(2*pause, longestRetry) {
		err := w.node.client.CoreV1().Pods(object.Namespace).Delete(w.ctx, object.Name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		if w.ctx.Err() == nil {
			w.node.log.Info("a pod is not deleted yet", "pod", object.Name, "error", err)
		}
		if !w.sleep(pause) {
			return
		}
	}
}
