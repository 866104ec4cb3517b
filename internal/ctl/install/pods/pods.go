// Package pods reaches pods of a cluster through its API server: a port of a pod, as kubectl port-forward does, and the logs of containers.
//
// It changes nothing. The state of a pod has no variables of its containers, because these may have secrets. Goroutines: a forwarded port
// has one, which ends with it.
package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Limits of the log of a container, and of a list of pods.
const (
	logLines = 5000
	logBytes = 4 << 20
	maxPods  = 20
)

// Forward opens a local port that leads to a port of a pod, as kubectl port-forward does. end closes it.
func Forward(ctx context.Context, access *rest.Config, namespace, pod string, port int) (local string, end func(), err error) {
	client, err := kubeclient.NewCore(access)
	if err != nil {
		return "", nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	trip, upgrade, err := spdy.RoundTripperFor(access)
	if err != nil {
		return "", nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	to := client.PortForward(namespace, pod)
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ports, err := portforward.NewOnAddresses(spdy.NewDialer(upgrade, &http.Client{Transport: trip}, http.MethodPost, to),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	go func() { done <- ports.ForwardPorts() }()
	end = func() { close(stop); <-done } //nolint:errcheck // the connection is not needed any more
	select {
	case err := <-done:
		return "", nil, err
	case <-ctx.Done():
		end()
		return "", nil, ctx.Err()
	case <-ready:
	}
	list, err := ports.GetPorts()
	if err != nil || len(list) == 0 {
		end()
		return "", nil, fmt.Errorf("the port is not forwarded: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", list[0].Local), end, nil
}

// Client reads the state and the logs of pods.
type Client struct{ core *kubeclient.Core }

// Connect returns a client of a cluster. It sends no request.
func Connect(access *rest.Config) (*Client, error) {
	client, err := kubeclient.NewCore(access)
	if err != nil {
		return nil, fmt.Errorf("a client for the cluster: %w", err)
	}
	return &Client{client}, nil
}

// Pod is a pod with the names of its containers.
type Pod struct {
	Namespace, Name string
	Containers      []string
	// State is the state of the pod and its images, as JSON.
	State []byte
}

// List returns pods of a namespace, a bounded number of them.
func (c *Client) List(ctx context.Context, namespace string) ([]Pod, error) {
	list, err := c.core.Pods(namespace).List(ctx, metav1.ListOptions{Limit: maxPods})
	if err != nil {
		return nil, fmt.Errorf("the pods of the namespace %s: %w", namespace, err)
	}
	all := make([]Pod, 0, len(list.Items))
	for _, p := range list.Items {
		one, images := Pod{Namespace: p.Namespace, Name: p.Name}, map[string]string{}
		for _, container := range p.Spec.Containers {
			one.Containers = append(one.Containers, container.Name)
			images[container.Name] = container.Image
		}
		one.State, err = json.Marshal(map[string]any{
			"name": p.Name, "namespace": p.Namespace, "labels": p.Labels, "node": p.Spec.NodeName, "images": images, "status": p.Status,
		})
		if err != nil {
			return nil, fmt.Errorf("the pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// ControlPlane returns namespace and name of the ready pods of control planes; of one revision, if it is given. The control plane without a revision
// goes before others.
func (c *Client) ControlPlane(ctx context.Context, revision string) (found [][2]string, err error) {
	selector := "app=istiod"
	if revision != "" {
		selector += ",istio.io/rev=" + revision
	}
	list, err := c.core.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: maxPods})
	if err != nil {
		return nil, fmt.Errorf("the pods of the control plane: %w", err)
	}
	var others [][2]string
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(one core.PodCondition) bool { return one.Type == core.PodReady && one.Status == core.ConditionTrue })
		switch {
		case !ready || p.DeletionTimestamp != nil:
		case p.Labels["istio.io/rev"] == "default":
			found = append(found, [2]string{p.Namespace, p.Name})
		default:
			others = append(others, [2]string{p.Namespace, p.Name})
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return others, nil
}

// Log returns the end of the log of a container, of lines that are not older than since.
func (c *Client) Log(ctx context.Context, namespace, pod, container string, since time.Duration) ([]byte, error) {
	lines, size, seconds := int64(logLines), int64(logBytes), int64(since/time.Second)
	return c.core.Log(namespace, pod, &core.PodLogOptions{Container: container, TailLines: &lines, LimitBytes: &size, SinceSeconds: &seconds}).DoRaw(ctx)
}
