// Package node is the part of the CNI plugin that stays: the host agent, which decides about pods and installs the rules that capture their traffic.
//
// Server answers the plugin (package wire). Pods knows the pods of the node, by a watch and by questions to the API server. Rules installs and checks
// rules in the network namespace of a pod, and refuses the namespaces of the agent and of the host.
//
// Goroutines: one per request of the plugin, and the watch. Serve and Run wait for them.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/agent/capture"
	"github.com/pilotmesh/pilot/internal/agent/cni/selection"
)

// applyLimit is how long the programs that install rules may take. It is below the time for which the plugin waits.
const applyLimit = 25 * time.Second

// namespace identifies a network namespace.
type namespace struct{ device, inode uint64 }

// Rules installs rules in network namespaces of pods.
type Rules struct {
	log     *slog.Logger
	refused map[namespace]bool
}

// NewRules returns Rules that refuse the network namespaces with the given paths: of the agent itself, and of the host. Paths that
// cannot be opened, except for the first one, are left out.
func NewRules(log *slog.Logger, own string, more ...string) (*Rules, error) {
	r := &Rules{log: log, refused: map[namespace]bool{}}
	for i, path := range append([]string{own}, more...) {
		f, err := os.Open(path)
		var id namespace
		if err == nil {
			id, err = identify(f)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			if i == 0 {
				return nil, fmt.Errorf("the network namespace of this process is not known: %w", err)
			}
			log.Warn("a network namespace that no pod has cannot be identified", "path", path, "error", err)
			continue
		}
		r.refused[id] = true
	}
	return r, nil
}

// identify returns the identity of an open network namespace, and an error for any other file.
func identify(f *os.File) (namespace, error) {
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return namespace{}, errors.New("it is no network namespace")
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return namespace{}, err
	}
	return namespace{s.Dev, s.Ino}, nil
}

// Install installs the rules of a pod, or does nothing if they are in place. The error names the pod, the rule and the remedy.
func (r *Rules) Install(ctx context.Context, pod *corev1.Pod, netns *os.File) error {
	return r.do(ctx, pod, netns, capture.Capture.Apply)
}

// Check returns an error if the rules of a pod are not in place.
func (r *Rules) Check(ctx context.Context, pod *corev1.Pod, netns *os.File) error {
	return r.do(ctx, pod, netns, capture.Capture.Check)
}

func (r *Rules) do(ctx context.Context, pod *corev1.Pod, netns *os.File, f func(capture.Capture, context.Context) error) error {
	failed := func(err error, remedy string) error {
		return fmt.Errorf("pod %s/%s: its traffic is not captured: %w%s", pod.Namespace, pod.Name, err, remedy)
	}
	id, err := identify(netns)
	if err == nil && r.refused[id] {
		err = errors.New("the network namespace belongs to the host or to the host agent")
	}
	if err != nil {
		return failed(err, "; the container runtime has sent it: look at its log")
	}
	// Opening the descriptor by this path gives another one for the same namespace.
	flags, err := selection.Flags(pod, fmt.Sprintf("/proc/self/fd/%d", netns.Fd()))
	if err != nil {
		return failed(err, "")
	}
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	log := r.log.With("pod", pod.Namespace+"/"+pod.Name)
	if err := f(capture.Capture{Flags: flags, Log: log, UID: os.Getuid()}, ctx); err != nil {
		return failed(err, "; the kernel of the node must support the rules, and the log of the host agent has more")
	}
	return nil
}
