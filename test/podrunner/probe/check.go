// Package probe asks containers whether they are well: over HTTP, TCP and gRPC from the machine, or by a command inside.
// An answer is good or bad; what follows from it is decided elsewhere. A Loop has no goroutine while it waits.
package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Target is a container as a probe sees it.
type Target struct {
	Host  string // where the pod can be reached
	Ports []v1.ContainerPort
	// Exec runs a command in the container.
	Exec func(ctx context.Context, command []string) (code int, output string, err error)
}

// Check asks once. The output explains why an answer is bad.
func Check(ctx context.Context, handler v1.ProbeHandler, target Target) (ok bool, output string) {
	switch {
	case handler.Exec != nil:
		return run(ctx, handler.Exec.Command, target)
	case handler.HTTPGet != nil:
		return get(ctx, handler.HTTPGet, target)
	case handler.TCPSocket != nil:
		return dial(ctx, handler.TCPSocket, target)
	case handler.GRPC != nil:
		return health(ctx, handler.GRPC, target)
	}
	return false, "the probe has no handler"
}

func run(ctx context.Context, command []string, target Target) (bool, string) {
	code, output, err := target.Exec(ctx, command)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, "command timed out"
	}
	if err != nil {
		return false, err.Error()
	}
	return code == 0, output
}

// port is a number, or the name of one of the container's.
func port(wanted intstr.IntOrString, ports []v1.ContainerPort) (string, error) {
	if wanted.Type == intstr.Int {
		return strconv.Itoa(int(wanted.IntVal)), nil
	}
	for _, named := range ports {
		if named.Name == wanted.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	if _, err := strconv.Atoi(wanted.StrVal); err == nil {
		return wanted.StrVal, nil
	}
	return "", fmt.Errorf("the container has no port named %q", wanted.StrVal)
}

// longestBody is how much of an answer is read.
const longestBody = 10 << 10

func get(ctx context.Context, action *v1.HTTPGetAction, target Target) (bool, string) {
	number, err := port(action.Port, target.Ports)
	if err != nil {
		return false, err.Error()
	}
	host := action.Host
	if host == "" {
		host = target.Host
	}
	address, err := url.Parse(action.Path)
	if err != nil {
		return false, err.Error()
	}
	address.Scheme, address.Host = strings.ToLower(string(action.Scheme)), net.JoinHostPort(host, number)
	if address.Scheme == "" {
		address.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return false, err.Error()
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	request.Header.Set("Accept", "*/*")
	for _, header := range action.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
			continue
		}
		request.Header.Add(header.Name, header.Value)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a probe asks for life, not for identity
	}}
	response, err := client.Do(request)
	if err != nil {
		return false, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestBody))
	if err != nil {
		return false, err.Error()
	}
	if response.StatusCode >= 200 && response.StatusCode < 400 {
		return true, string(body)
	}
	return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode)
}

func dial(ctx context.Context, action *v1.TCPSocketAction, target Target) (bool, string) {
	number, err := port(action.Port, target.Ports)
	if err != nil {
		return false, err.Error()
	}
	host := action.Host
	if host == "" {
		host = target.Host
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, number))
	if err != nil {
		return false, err.Error()
	}
	conn.Close()
	return true, ""
}

// health speaks grpc.health.v1.Health/Check: one message with a string, one with an enumeration. That is less than a
// library of it.
func health(ctx context.Context, action *v1.GRPCAction, target Target) (bool, string) {
	var message []byte
	if action.Service != nil && *action.Service != "" {
		message = append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, uint64(len(*action.Service)))...)
		message = append(message, *action.Service...)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	address := "http://" + net.JoinHostPort(target.Host, strconv.Itoa(int(action.Port))) + "/grpc.health.v1.Health/Check"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(append(frame, message...)))
	if err != nil {
		return false, err.Error()
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"kube-probe/1.36"}}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false, fmt.Sprintf("health rpc failed: %v", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestBody))
	if err != nil {
		return false, fmt.Sprintf("health rpc failed: %v", err)
	}
	status := response.Header.Get("Grpc-Status") + response.Trailer.Get("Grpc-Status")
	if response.StatusCode != http.StatusOK || status != "0" {
		return false, fmt.Sprintf("health rpc failed: HTTP status %d, gRPC status %q", response.StatusCode, status)
	}
	// SERVING is field 1 with value 1; a message without it is UNKNOWN.
	if serving := []byte{1 << 3, 1}; len(body) < 5 || !bytes.Contains(body[5:], serving) {
		return false, "service unhealthy (it does not say SERVING)"
	}
	return true, ""
}

// Loop asks again and again.
type Loop struct {
	period, timeout time.Duration
	check           func(ctx context.Context) (bool, string)
	report          func(ok bool, output string)

	ctx    context.Context
	cancel context.CancelFunc
	next   *time.Timer
}

// first is how long a container has for its very first answer at least: it has just been started.
const first = 100 * time.Millisecond

// Start begins a loop; each answer is reported from a goroutine that ends with it.
func Start(ctx context.Context, spec *v1.Probe, check func(ctx context.Context) (bool, string), report func(ok bool, output string)) *Loop {
	seconds := func(n, otherwise int32) time.Duration {
		if n <= 0 {
			n = otherwise
		}
		return time.Duration(n) * time.Second
	}
	l := &Loop{period: seconds(spec.PeriodSeconds, 10), timeout: seconds(spec.TimeoutSeconds, 1), check: check, report: report}
	l.ctx, l.cancel = context.WithCancel(ctx)
	begin := make(chan struct{})
	l.next = time.AfterFunc(max(first, seconds(spec.InitialDelaySeconds, 0)), func() { <-begin; l.ask() })
	close(begin)
	return l
}

func (l *Loop) ask() {
	if l.ctx.Err() != nil {
		return
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	ok, output := l.check(ctx)
	cancel()
	if l.ctx.Err() != nil {
		return
	}
	l.report(ok, output)
	l.next.Reset(max(0, l.period-time.Since(begin)))
}

// Stop ends the loop. An answer that is under way is not reported.
func (l *Loop) Stop() {
	l.cancel()
	l.next.Stop()
}
