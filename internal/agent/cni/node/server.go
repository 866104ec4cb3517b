package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/agent/cni/selection"
	"github.com/pilotmesh/pilot/internal/agent/cni/wire"
)

// lookUpLimit is how long the API server may take to answer about a pod. It is below the time for which the plugin waits.
const lookUpLimit = 2 * time.Second

// requestLimit is how long a plugin may take to send its request.
const requestLimit = 5 * time.Second

// Server answers the plugin.
type Server struct {
	// Find returns a pod. If it returns an error, the agent does not decide.
	Find  func(ctx context.Context, r wire.Request) (*corev1.Pod, error)
	Rules *Rules
	Log   *slog.Logger
}

// Listen opens the socket in a folder that only root may enter. A socket that an earlier process has left is replaced.
func Listen(dir string) (*net.UnixListener, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the socket: %w", err)
	}
	path := filepath.Join(dir, wire.Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replacing the socket: %w", err)
	}
	l, err := net.ListenUnix(wire.Network, &net.UnixAddr{Name: path, Net: wire.Network})
	if err != nil {
		return nil, fmt.Errorf("the socket of the plugin: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve answers until ctx ends, and then lets requests that are being answered complete.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the socket of the plugin: %w", err)
		}
		running.Go(func() {
			defer c.Close() //nolint:errcheck // nothing is buffered
			if err := s.answer(context.WithoutCancel(ctx), c); err != nil {
				s.Log.Warn("a request of the plugin is not answered", "error", err)
			}
		})
	}
}

func (s *Server) answer(ctx context.Context, c *net.UnixConn) error {
	if err := c.SetReadDeadline(time.Now().Add(requestLimit)); err != nil {
		return err
	}
	r, netns, err := wire.Receive(c)
	if err != nil {
		return err
	}
	defer netns.Close()
	pod, d := s.decide(ctx, r)
	if err := wire.Send(c, d); err != nil || !d.Capture {
		return err
	}
	do := s.Rules.Install
	if r.Command == wire.Check {
		do = s.Rules.Check
	}
	var result wire.Result
	if err := do(ctx, pod, netns); err != nil {
		s.Log.Error("pod", "command", r.Command, "error", err)
		result.Error = err.Error()
	}
	return wire.Send(c, result)
}

func (s *Server) decide(ctx context.Context, r wire.Request) (*corev1.Pod, wire.Decision) {
	limited, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	pod, err := s.Find(limited, r)
	if err != nil {
		s.Log.Warn("a pod passes without a decision", "pod", r.Pod(), "error", err)
		return nil, wire.Decision{Unknown: true, Reason: err.Error()}
	}
	captured, reason := selection.Of(pod)
	return pod, wire.Decision{Capture: captured, Reason: reason}
}
