// Package repair helps pods of the mesh that have started without rules: before the plugin was installed, or while the host agent did not run.
//
// Such a pod does not start, because its container istio-validation fails with an exit code of its own. The controller hears of each change of
// a pod of the node, and either installs the rules, so that the container's next attempt succeeds, or deletes the pod, so that its controller makes
// another one, or labels it for the operator. An Event of the pod reports the repair.
//
// Goroutines: none of its own. Run works on one pod at a time.
package repair

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/pilotmesh/pilot/internal/agent/cni/node"
	"github.com/pilotmesh/pilot/internal/agent/cni/selection"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Mode is what happens to a pod without rules.
type Mode string

// The modes.
const (
	Repair Mode = "repair" // install the rules
	Delete Mode = "delete" // delete the pod
	Label  Mode = "label"  // label the pod
	Off    Mode = "off"
)

// Settings say how pods are repaired.
type Settings struct {
	Mode Mode
	// Key and Value are the label of mode Label.
	Key, Value string
	// Proc is where the file system proc of the host is mounted.
	Proc string
	// Node and Source are the origin of Events.
	Node, Source string
}

// Controller repairs pods.
type Controller struct {
	client *kubeclient.Core
	pods   *node.Pods
	rules  *node.Rules
	s      Settings
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// New returns a controller for the pods of a node.
func New(client *kubeclient.Core, pods *node.Pods, rules *node.Rules, s Settings, log *slog.Logger) *Controller {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](200*time.Millisecond, 30*time.Second)
	return &Controller{client: client, pods: pods, rules: rules, s: s, log: log, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// Start connects the controller to the pods. It must be called before the pods run.
func (c *Controller) Start() error {
	return c.pods.Observe(func(pod *corev1.Pod) {
		if isBroken(pod) {
			c.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	})
}

// Run repairs pods until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		name, ended := c.queue.Get()
		if ended {
			return nil
		}
		err := c.one(ctx, name)
		switch {
		case err == nil:
			c.queue.Forget(name)
		case errors.Is(err, errNoProcess):
			c.queue.AddRateLimited(name) // the next attempt of the container starts one
		default:
			c.log.Warn("a pod without capture is not repaired", "pod", name, "error", err)
			c.queue.AddRateLimited(name)
		}
		c.queue.Done(name)
	}
}

// isBroken reports whether a pod does not start because its traffic is not captured.
func isBroken(pod *corev1.Pod) bool {
	if captured, _ := selection.Of(pod); !captured || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.Name != selection.Validation {
			continue
		}
		if t := s.State.Terminated; t != nil {
			return t.ExitCode == selection.NotCaptured
		}
		last := s.LastTerminationState.Terminated
		return last != nil && last.ExitCode == selection.NotCaptured
	}
	return false
}

func (c *Controller) one(ctx context.Context, name types.NamespacedName) error {
	pod := c.pods.Get(name.Namespace, name.Name)
	if pod == nil || !isBroken(pod) {
		return nil
	}
	switch c.s.Mode {
	case Repair:
		return c.repair(ctx, pod)
	case Delete:
		uid := pod.UID
		err := c.client.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another pod has its name
			return nil
		}
		if err == nil {
			c.report(ctx, pod, corev1.EventTypeNormal, "CaptureRepair", "the pod is deleted, because it started before its traffic could be captured")
		}
		return err
	case Label:
		return c.label(ctx, pod)
	}
	return nil
}

// repair installs the rules of a pod.
func (c *Controller) repair(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodFailed {
		return nil // its containers do not start again
	}
	netns, err := find(c.s.Proc, string(pod.UID))
	if err != nil {
		return err
	}
	defer netns.Close()
	if c.rules.Check(ctx, pod, netns) == nil {
		return nil // repaired; the container has not tried again yet
	}
	if err := c.rules.Install(ctx, pod, netns); err != nil {
		c.report(ctx, pod, corev1.EventTypeWarning, "CaptureFailed", err.Error())
		return err
	}
	c.report(ctx, pod, corev1.EventTypeNormal, "CaptureRepair", "the traffic of the pod, which started before it could be captured, is captured now")
	return nil
}

func (c *Controller) label(ctx context.Context, pod *corev1.Pod) error {
	if pod.Labels[c.s.Key] == c.s.Value {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{c.s.Key: c.s.Value}}})
	if err != nil {
		return err
	}
	_, err = c.client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		c.report(ctx, pod, corev1.EventTypeWarning, "CaptureRepair", "the pod has started before its traffic could be captured: delete it, and its controller makes another one")
	}
	return err
}

// report makes an Event of the pod. Without the Event, the repair is as good.
func (c *Controller) report(ctx context.Context, pod *corev1.Pod, kind, reason, message string) {
	const longest = 1000
	if len(message) > longest {
		message = message[:longest]
	}
	now := metav1.NewTime(time.Now())
	_, err := c.client.Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Type:           kind, Reason: reason, Message: message, Source: corev1.EventSource{Component: c.s.Source, Host: c.s.Node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	level := slog.LevelInfo
	if kind == corev1.EventTypeWarning {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "an Event of a pod", "pod", pod.Namespace+"/"+pod.Name, "reason", reason, "event", message)
	if err != nil {
		c.log.Warn("an Event of a pod is lost", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}
