// Package stream is the part of a kubelet's API that the API server calls for users: logs, exec, attach, port-forward. It
// speaks the protocols; a Backend carries out the requests. Each request has its goroutine, and ends with its connection.
package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/pilotmesh/pilot/test/podrunner/logs"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
)

// ErrNotFound is what a Backend returns, wrapped, for a pod or container that it does not have.
var ErrNotFound = errors.New("not found")

// Pod names a pod. The UID may be empty.
type Pod struct{ Namespace, Name, UID string }

// Backend carries out requests.
type Backend interface {
	// Logs writes a container's log. Nothing may be written before an error.
	Logs(ctx context.Context, pod Pod, container string, previous bool, options logs.Options, to io.Writer) error
	// Exec runs a command and returns its exit code.
	Exec(ctx context.Context, pod Pod, container string, command []string, streams sandbox.Streams) (int, error)
	// Attach connects to the container's own process.
	Attach(ctx context.Context, pod Pod, container string, streams sandbox.Streams) error
	// Forward connects to a port of the pod, until either side ends.
	Forward(ctx context.Context, pod Pod, port int32, to io.ReadWriteCloser) error
}

const (
	idleTimeout     = 4 * time.Hour
	creationTimeout = 30 * time.Second
)

// Handler serves the API.
func Handler(backend Backend) http.Handler {
	s := &server{backend: backend}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	for _, uid := range []string{"", "{uid}/"} {
		mux.HandleFunc("/exec/{namespace}/{pod}/"+uid+"{container}", s.exec)
		mux.HandleFunc("/attach/{namespace}/{pod}/"+uid+"{container}", s.attach)
	}
	mux.HandleFunc("/portForward/{namespace}/{pod}", s.forward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", s.forward)
	return mux
}

type server struct{ backend Backend }

func podOf(r *http.Request) Pod {
	return Pod{r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid")}
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	options := logs.Options{Follow: query.Get("follow") == "true", Timestamps: query.Get("timestamps") == "true"}
	for name, value := range map[string]**int64{"tailLines": &options.Tail, "limitBytes": &options.Limit} {
		if text := query.Get(name); text != "" {
			number, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				http.Error(w, name+": "+err.Error(), http.StatusBadRequest)
				return
			}
			*value = &number
		}
	}
	if seconds, err := strconv.ParseInt(query.Get("sinceSeconds"), 10, 64); err == nil {
		options.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	} else if since, err := time.Parse(time.RFC3339, query.Get("sinceTime")); err == nil {
		options.Since = since
	}
	switch query.Get("stream") {
	case "Stdout":
		options.Stream = "stdout"
	case "Stderr":
		options.Stream = "stderr"
	}
	out := &lazy{ResponseWriter: w}
	w.Header().Set("Content-Type", "text/plain")
	err := s.backend.Logs(r.Context(), podOf(r), r.PathValue("container"), query.Get("previous") == "true", options, out)
	if err != nil && !out.begun {
		http.Error(w, err.Error(), code(err))
	}
}

func code(err error) int {
	if errors.Is(err, ErrNotFound) {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

// lazy remembers whether anything was written, and sends it when flushed.
type lazy struct {
	http.ResponseWriter
	begun bool
}

func (l *lazy) Write(text []byte) (int, error) {
	l.begun = true
	return l.ResponseWriter.Write(text)
}

// Flush is called when the reader has caught up with the container.
func (l *lazy) Flush() {
	l.begun = true
	if flusher, ok := l.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := podOf(r)
	remotecommand.ServeExec(w, r, &conversation{s.backend, pod}, pod.Name, pod.UID, r.PathValue("container"), r.URL.Query()["command"],
		options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := podOf(r)
	remotecommand.ServeAttach(w, r, &conversation{s.backend, pod}, pod.Name, pod.UID, r.PathValue("container"),
		options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) forward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := podOf(r)
	portforward.ServePortForward(w, r, &conversation{s.backend, pod}, pod.Name, pod.UID, options, idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

// conversation gives the protocols' library the pod of its request.
type conversation struct {
	backend Backend
	pod     Pod
}

// ExecInContainer implements remotecommand.Executor.
func (c *conversation) ExecInContainer(ctx context.Context, _, _, container string, command []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	streams, stop := streamsOf(in, out, errs, tty, resize)
	defer stop()
	code, err := c.backend.Exec(ctx, c.pod, container, command, streams)
	if err == nil && code != 0 {
		return exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

// AttachContainer implements remotecommand.Attacher.
func (c *conversation) AttachContainer(ctx context.Context, _, _, container string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	streams, stop := streamsOf(in, out, errs, tty, resize)
	defer stop()
	return c.backend.Attach(ctx, c.pod, container, streams)
}

// PortForward implements portforward.PortForwarder.
func (c *conversation) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return c.backend.Forward(ctx, c.pod, port, stream)
}

// streamsOf translates the library's streams. Nil interfaces stay nil; sizes end when stop is called.
func streamsOf(in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) (sandbox.Streams, func()) {
	streams := sandbox.Streams{Input: in, Terminal: tty}
	if out != nil {
		streams.Output = out
	}
	if errs != nil {
		streams.Error = errs
	}
	if !tty || resize == nil {
		return streams, func() {}
	}
	sizes, stopped := make(chan sandbox.Size), make(chan struct{})
	streams.Sizes = sizes
	go func() {
		defer close(sizes)
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				select {
				case sizes <- sandbox.Size{Width: size.Width, Height: size.Height}:
				case <-stopped:
					return
				}
			case <-stopped:
				return
			}
		}
	}()
	return streams, func() { close(stopped) }
}
