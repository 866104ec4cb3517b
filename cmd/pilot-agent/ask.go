package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
)

func request() *cobra.Command {
	var port, debug uint16
	c := &cobra.Command{
		Use:   "request METHOD PATH [BODY]",
		Short: "Send a request to Envoy's admin interface and print the response",
		Long: `request sends a request to Envoy's admin interface, which listens on loopback only, and prints the response. The body "-" is
read from the standard input.

With --debug-port=15004 it asks the agent for a debug page of the control plane, which the agent fetches as the workload: of proxies in its
own namespace, or of all if it runs in the namespace of the control plane. GET /debug/list lists the pages.

Exit codes: 0 the answer is 200; 1 it answered something else, or not at all; 2 the command line is invalid.`,
		Example: `  pilot-agent request GET 'stats?filter=upstream_rq'
  pilot-agent request POST 'logging?level=debug'
  pilot-agent request POST tap - < tap.yaml
  pilot-agent request --debug-port=15004 GET '/debug/syncz?pretty'`,
		Args: cobra.RangeArgs(2, 3),
	}
	c.Flags().Uint16Var(&port, "proxyAdminPort", 15000, "port of the admin interface, on loopback")
	c.Flags().Uint16Var(&debug, "debug-port", 0, "port on loopback to which the request is sent instead, such as 15004")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd)
		defer stop()
		var body io.Reader
		switch {
		case len(args) == 3 && args[2] == "-":
			body = cmd.InOrStdin()
		case len(args) == 3:
			body = strings.NewReader(args[2])
		}
		to, flag, who := port, "--proxyAdminPort", "Envoy"
		if debug != 0 {
			to, flag, who = debug, "PROXY_XDS_DEBUG_VIA_AGENT_PORT", "the agent"
		}
		url := "http://" + net.JoinHostPort("localhost", strconv.Itoa(int(to))) + "/" + strings.TrimPrefix(args[1], "/")
		req, err := http.NewRequestWithContext(ctx, strings.ToUpper(args[0]), url, body)
		if err != nil {
			return run.Usage(err)
		}
		client := local(0)
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%s: %w; is the agent running, and is %d its %s?", who, err, to, flag)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(cmd.OutOrStdout(), resp.Body); err != nil {
			return fmt.Errorf("reading the response: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s", who, resp.Status)
		}
		return nil
	}
	return c
}

func wait() *cobra.Command {
	var (
		url                      string
		timeout, request, period int
	)
	c := &cobra.Command{
		Use:   "wait",
		Short: "Wait until the proxy is ready",
		Long: `wait repeats a request until the proxy is ready or the timeout is exceeded. A container that must not start before its proxy
runs it first.

Exit codes: 0 the proxy is ready; 1 it was not ready in time; 2 the command line is invalid.`,
		Example: `  # start the application when its proxy is ready
  pilot-agent wait --timeoutSeconds=30 && exec ./application`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&url, "url", "http://localhost:15021/healthz/ready", "URL of the readiness check")
	f.IntVar(&timeout, "timeoutSeconds", 60, "how long to wait, in seconds")
	f.IntVar(&request, "requestTimeoutMillis", 500, "timeout of one request, in milliseconds")
	f.IntVar(&period, "periodMillis", 500, "time between two requests, in milliseconds")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 || request <= 0 || period <= 0 {
			return run.Usage(errors.New("--timeoutSeconds, --requestTimeoutMillis and --periodMillis must be positive"))
		}
		ctx, stop := interruptible(cmd)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout)*time.Second)
		defer cancel()
		return await(ctx, url, time.Duration(request)*time.Millisecond, time.Duration(period)*time.Millisecond)
	}
	return c
}

// local returns a client for which localhost is this host, whatever the system resolves it to: the proxy listens on the loopback address of
// the IP version that its workload has.
func local(timeout time.Duration) *http.Client {
	var dialer net.Dialer
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil || host != "localhost" {
				return dialer.DialContext(ctx, network, address)
			}
			conn, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				if other, otherErr := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port)); otherErr == nil {
					return other, nil
				}
			}
			return conn, err
		},
	}}
}

// await sends a request immediately and then every period, until the status is 200.
func await(ctx context.Context, url string, timeout, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	client := local(timeout)
	defer client.CloseIdleConnections()
	began := time.Now()
	var last error
	for {
		err := ask(ctx, client, url)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // an error because ctx has ended says less than the previous one
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the proxy was not ready within %v: %w", time.Since(began).Round(100*time.Millisecond), last)
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return err
}
