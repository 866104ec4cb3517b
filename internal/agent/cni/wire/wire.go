// Package wire is the conversation between the CNI plugin, which a container runtime starts for each pod, and the host agent.
//
// It uses packets on a Unix socket. The plugin sends one request with the descriptor of the pod's network namespace. The agent answers with its
// decision, and, if the pod is captured, with the result once the rules are in place. A descriptor means the same in every mount namespace: the
// agent needs no access to the paths by which a runtime names network namespaces, nor the plugin credentials of the API server.
//
// The package starts no goroutines.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is the name of the socket in the folder of the agent.
const Socket = "plugin.sock"

// Network is the kind of the socket.
const Network = "unixpacket"

// largest is the size of the largest packet.
const largest = 64 << 10

// ErrUnreachable means that there is no decision: the agent does not run, does not answer in time, or does not know the pod.
var ErrUnreachable = errors.New("the host agent has not decided")

// Commands of a request.
const (
	Add   = "ADD"
	Check = "CHECK"
)

// Request is about one pod.
type Request struct {
	Command   string `json:"command"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID of the pod, if the runtime knows it.
	UID string `json:"uid,omitempty"`
}

// Pod names the pod in messages.
func (r Request) Pod() string { return r.Namespace + "/" + r.Name }

// Decision is the first answer.
type Decision struct {
	// Unknown means that the agent cannot decide at present.
	Unknown bool `json:"unknown,omitempty"`
	// Capture means that a result follows.
	Capture bool `json:"capture"`
	// Reason says why there is no capture.
	Reason string `json:"reason,omitempty"`
}

// Result is the second answer.
type Result struct {
	// Error is empty if the rules are in place.
	Error string `json:"error,omitempty"`
}

// Limits are how long the plugin waits for the decision, and then for the result.
type Limits struct{ Decision, Result time.Duration }

// Ask sends a request and returns the decision. Its error is ErrUnreachable if there is no decision; another error means that the pod is to be
// captured and is not.
func Ask(ctx context.Context, socket string, r Request, netns *os.File, limits Limits) (Decision, error) {
	c, d, err := decide(ctx, socket, r, netns, limits.Decision)
	if err != nil {
		return Decision{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer c.Close() //nolint:errcheck // nothing is buffered
	if d.Unknown {
		return d, fmt.Errorf("%w: %s", ErrUnreachable, d.Reason)
	}
	if !d.Capture {
		return d, nil
	}
	var result Result
	if err := c.SetReadDeadline(time.Now().Add(limits.Result)); err != nil {
		return d, err
	}
	if err := receive(c, &result); err != nil {
		return d, fmt.Errorf("the host agent has not reported the result: %w; look at its log", err)
	}
	if result.Error != "" {
		return d, errors.New(result.Error)
	}
	return d, nil
}

func decide(ctx context.Context, socket string, r Request, netns *os.File, limit time.Duration) (*net.UnixConn, Decision, error) {
	dialer := net.Dialer{Timeout: limit}
	conn, err := dialer.DialContext(ctx, Network, socket)
	if err != nil {
		return nil, Decision{}, err
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, Decision{}, errors.Join(fmt.Errorf("%s is no %s socket", socket, Network), conn.Close())
	}
	var d Decision
	packet, err := json.Marshal(r)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(limit))
	}
	if err == nil {
		_, _, err = c.WriteMsgUnix(packet, unix.UnixRights(int(netns.Fd())), nil)
	}
	if err == nil {
		err = receive(c, &d)
	}
	if err != nil {
		return nil, d, errors.Join(err, c.Close())
	}
	return c, d, nil
}

// Receive reads the request of a connection, and checks that root sent it. The caller closes the file.
func Receive(c *net.UnixConn) (r Request, netns *os.File, err error) {
	if err := fromRoot(c); err != nil {
		return r, nil, err
	}
	packet, rights := make([]byte, largest), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(packet, rights)
	if err != nil {
		return r, nil, fmt.Errorf("reading a request: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return r, nil, errors.New("the request has no network namespace")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return r, nil, errors.New("the request has no network namespace")
	}
	netns = os.NewFile(uintptr(fds[0]), "network namespace of a pod")
	if err := json.Unmarshal(packet[:n], &r); err != nil {
		return r, nil, errors.Join(fmt.Errorf("the request cannot be read: %w", err), netns.Close())
	}
	if r.Namespace == "" || r.Name == "" || r.Command != Add && r.Command != Check {
		return r, nil, errors.Join(fmt.Errorf("the request %q names no pod, or an unknown command", packet[:n]), netns.Close())
	}
	return r, netns, nil
}

// fromRoot checks the user of the other process.
func fromRoot(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the user of a request is not known: %w", failed)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("the user %d may not ask: only root may", peer.Uid)
	}
	return nil
}

// Send sends an answer.
func Send(c *net.UnixConn, answer any) error {
	packet, err := json.Marshal(answer)
	if err == nil {
		_, err = c.Write(packet)
	}
	return err
}

func receive(c *net.UnixConn, into any) error {
	packet := make([]byte, largest)
	n, err := c.Read(packet)
	if err != nil {
		return err
	}
	return json.Unmarshal(packet[:n], into)
}
