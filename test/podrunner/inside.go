package podrunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/logs"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/probe"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/stream"
	"github.com/pilotmesh/pilot/test/podrunner/volume"
)

// fromObjects reports whether a volume's files come from objects: containers must not write there.
func (w *worker) fromObjects(name string) bool {
	for _, source := range w.pod().Spec.Volumes {
		if source.Name == name {
			return volume.FromObjects(&source.VolumeSource)
		}
	}
	return false
}

func environment(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, variable := range list {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return env
}

// ask begins a probe.
func (w *worker) ask(action pod.Ask) {
	spec := find(w.pod(), action.Name)
	p := map[pod.Probe]*v1.Probe{pod.Startup: spec.StartupProbe, pod.Liveness: spec.LivenessProbe, pod.Readiness: spec.ReadinessProbe}[action.Probe]
	target := w.target(spec)
	w.probes[asked{action.Container, action.Probe}] = probe.Start(w.ctx, p,
		func(ctx context.Context) (bool, string) { return probe.Check(ctx, p.ProbeHandler, target) },
		func(ok bool, output string) {
			w.post(pod.Probed{Container: action.Container, Probe: action.Probe, OK: ok, Output: output})
		})
}

func (w *worker) leave(which asked) {
	if loop := w.probes[which]; loop != nil {
		loop.Stop()
		delete(w.probes, which)
	}
}

// target is a container as probes and hooks see it.
func (w *worker) target(spec *v1.Container) probe.Target {
	target := probe.Target{Ports: spec.Ports}
	if box := w.sandbox(); box != nil {
		target.Host = box.Addresses()[0].String()
	}
	target.Exec = func(ctx context.Context, command []string) (int, string, error) {
		output := new(short)
		code, err := w.exec(ctx, spec.Name, command, sandbox.Streams{Output: output, Error: output})
		return code, output.String(), err
	}
	return target
}

// short keeps the beginning of the text written to stdout and stderr.
type short struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const longestOutput = 10 << 10

func (s *short) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(text[:min(len(text), longestOutput-s.text.Len())])
	return len(text), nil
}

func (s *short) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// hook runs a hook.
func (w *worker) hook(action pod.Run) {
	spec := find(w.pod(), action.Name)
	handler := spec.Lifecycle.PostStart
	if action.Hook == pod.PreStop {
		handler = spec.Lifecycle.PreStop
	}
	ctx, cancel := w.ctx, context.CancelFunc(func() {})
	if !action.Until.IsZero() {
		ctx, cancel = context.WithDeadline(w.ctx, action.Until)
	}
	defer cancel()
	message := ""
	switch {
	case handler.Sleep != nil:
		w.sleepUntil(ctx, time.Duration(handler.Sleep.Seconds)*time.Second)
	case handler.TCPSocket != nil:
		// Of no meaning in a hook, and kept by the API only for old objects.
	default:
		ok, output := probe.Check(ctx, v1.ProbeHandler{Exec: handler.Exec, HTTPGet: handler.HTTPGet}, w.target(spec))
		if !ok {
			message = "failed: " + output
		}
	}
	w.post(pod.Hooked{Container: action.Container, Hook: action.Hook, Err: message})
}

// sleepUntil waits for a time, but no longer than the context or the container lasts.
func (w *worker) sleepUntil(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// running returns the present life of a container that runs.
func (w *worker) running(name string) (*life, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[name]
	if l == nil {
		return nil, fmt.Errorf("container %s of pod %s: %w", name, w.object.Name, sandbox.ErrEnded)
	}
	return l, nil
}

// exec runs a command in a container.
func (w *worker) exec(ctx context.Context, name string, command []string, streams sandbox.Streams) (int, error) {
	l, err := w.running(name)
	if err != nil {
		return 0, err
	}
	spec := l.spec
	spec.Args, spec.Mounts = command, nil
	return l.process.Exec(ctx, spec, streams)
}

// process returns a container's process.
func (n *Node) process(name stream.Pod, container string) (*sandbox.Process, error) {
	w, err := n.find(name)
	if err != nil {
		return nil, err
	}
	l, err := w.running(container)
	if err != nil {
		return nil, err
	}
	return l.process, nil
}

// Exec implements stream.Backend.
func (n *Node) Exec(ctx context.Context, name stream.Pod, container string, command []string, streams sandbox.Streams) (int, error) {
	w, err := n.find(name)
	if err != nil {
		return 0, err
	}
	return w.exec(ctx, container, command, streams)
}

// Attach implements stream.Backend.
func (n *Node) Attach(ctx context.Context, name stream.Pod, container string, streams sandbox.Streams) error {
	w, err := n.find(name)
	if err != nil {
		return err
	}
	l, err := w.running(container)
	if err != nil {
		return err
	}
	var listeners []*logs.Listener
	for stream, to := range map[string]io.Writer{"stdout": streams.Output, "stderr": streams.Error} {
		if to != nil {
			listener := l.log.Listen(stream, to)
			defer l.log.Leave(listener)
			listeners = append(listeners, listener)
		}
	}
	if streams.Sizes != nil {
		go func() { // ends with the sizes, at the end of the request
			for size := range streams.Sizes {
				_ = l.process.Resize(size)
			}
		}()
	}
	typed := make(chan error, 1)
	if streams.Input != nil {
		once := find(w.pod(), container).StdinOnce
		go func() { typed <- l.process.Attach(streams.Input, once) }() // ends with the connection
	}
	for _, listener := range listeners {
		select {
		case <-listener.Done():
		case <-ctx.Done():
			return nil
		}
	}
	if len(listeners) == 0 && streams.Input != nil {
		return <-typed
	}
	return nil
}

// Forward implements stream.Backend.
func (n *Node) Forward(ctx context.Context, name stream.Pod, port int32, to io.ReadWriteCloser) error {
	w, err := n.find(name)
	if err != nil {
		return err
	}
	box := w.sandbox()
	if box == nil {
		return fmt.Errorf("pod %s/%s does not run", name.Namespace, name.Name)
	}
	conn, err := box.Dial(ctx, int(port))
	if err != nil {
		return fmt.Errorf("connect to port %d of pod %s/%s: %w", port, name.Namespace, name.Name, err)
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() { // ends when either side does
		defer close(sent)
		_, _ = io.Copy(conn, to)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(to, conn)
	to.Close()
	<-sent
	return err
}

// Logs implements stream.Backend.
func (n *Node) Logs(ctx context.Context, name stream.Pod, container string, previous bool, options logs.Options, to io.Writer) error {
	w, err := n.find(name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	l := w.lives[container]
	w.mu.Unlock()
	if l == nil {
		return fmt.Errorf("container %q in pod %q is waiting to start", container, name.Name)
	}
	number, live := l.number, l.log
	if previous {
		number, live = number-1, nil
	}
	err = logs.Read(ctx, w.logPath(container, number), live, options, to)
	if errors.Is(err, os.ErrNotExist) && previous {
		return fmt.Errorf("previous terminated container %q in pod %q not found", container, name.Name)
	}
	return err
}
