package health

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"syscall"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/agent/probe"
)

// Probe is the check of an application, and how often it is made. The zero value checks nothing.
type Probe struct {
	// Delay is the time until the first attempt, and Period the time between attempts. Timeout is how long one may take.
	Delay, Period, Timeout time.Duration
	// Successes and Failures are how many equal results in a row change the health.
	Successes, Failures int32

	ask func(context.Context) error
}

// Set reports whether there is a check.
func (p Probe) Set() bool { return p.ask != nil }

// The defaults of fields that are not set, as in Kubernetes.
const (
	defaultPeriod, defaultTimeout = 10, 1
	defaultSuccesses              = 1
	defaultFailures               = 3
)

// Parse reads a readinessProbe. It probes the workload's address unless the probe names a host.
func Parse(from *networking.ReadinessProbe, address string) (Probe, error) {
	for _, n := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", from.GetInitialDelaySeconds()}, {"timeoutSeconds", from.GetTimeoutSeconds()}, {"periodSeconds", from.GetPeriodSeconds()},
		{"successThreshold", from.GetSuccessThreshold()}, {"failureThreshold", from.GetFailureThreshold()},
	} {
		if n.value < 0 {
			return Probe{}, fmt.Errorf("%s: %d is negative", n.field, n.value)
		}
	}
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	p := Probe{
		Delay: seconds(from.GetInitialDelaySeconds()), Period: seconds(cmp.Or(from.GetPeriodSeconds(), defaultPeriod)),
		Timeout:   seconds(cmp.Or(from.GetTimeoutSeconds(), defaultTimeout)),
		Successes: cmp.Or(from.GetSuccessThreshold(), defaultSuccesses), Failures: cmp.Or(from.GetFailureThreshold(), defaultFailures),
	}
	if command := from.GetExec().GetCommand(); len(command) > 0 {
		p.ask = func(ctx context.Context) error { return run(ctx, command) }
		return p, nil
	}
	request, err := requestOf(from)
	if err != nil {
		return Probe{}, err
	}
	direct, err := probe.NewDirect(request, address)
	if err != nil {
		return Probe{}, err
	}
	p.ask = direct.Try
	return p, nil
}

// requestOf returns the probe to make over the network.
func requestOf(from *networking.ReadinessProbe) (request probe.Probe, err error) {
	port := func(n uint32) probe.Port {
		if n == 0 || n > math.MaxUint16 {
			err = fmt.Errorf("the port %d is not between 1 and 65535", n)
		}
		return probe.Port(n)
	}
	switch m := from.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		h := &probe.HTTP{Path: m.HttpGet.GetPath(), Port: port(m.HttpGet.GetPort()), Host: m.HttpGet.GetHost(), Scheme: m.HttpGet.GetScheme()}
		for _, header := range m.HttpGet.GetHttpHeaders() {
			h.Headers = append(h.Headers, probe.Header{Name: header.GetName(), Value: header.GetValue()})
		}
		request.HTTP = h
	case *networking.ReadinessProbe_TcpSocket:
		request.TCP = &probe.TCP{Port: port(m.TcpSocket.GetPort()), Host: m.TcpSocket.GetHost()}
	case *networking.ReadinessProbe_Grpc:
		request.GRPC = &probe.GRPC{Port: port(m.Grpc.GetPort()), Service: m.Grpc.GetService()}
	case *networking.ReadinessProbe_Exec:
		return request, errors.New("exec.command: it has no words")
	default:
		return request, errors.New("it has none of httpGet, tcpSocket, exec and grpc; write one of them")
	}
	return request, err
}

// maxOutput is how many bytes of a command's output an error quotes.
const maxOutput = 256

// run runs a command in a process group of its own, which ends with ctx.
func run(ctx context.Context, command []string) error {
	var out tail
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what a process that left the group keeps open is not waited for
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the command %q: %w%s", strings.Join(command, " "), err, out.text())
	}
	return nil
}

// tail keeps the last maxOutput bytes written to it.
type tail struct{ end []byte }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.end = append(t.end, b...)
	t.end = t.end[max(0, len(t.end)-maxOutput):]
	return len(b), nil
}

// text returns the output, as the end of an error message.
func (t *tail) text() string {
	text := strings.ToValidUTF8(string(bytes.TrimSpace(t.end)), "?")
	if text == "" {
		return ""
	}
	return ": " + text
}
