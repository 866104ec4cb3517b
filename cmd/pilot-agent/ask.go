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

	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/run"
)

func request() *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use:   "request METHOD PATH",
		Short: "Send a request to Envoy's admin interface and print the response",
		Example: `  pilot-agent request GET 'stats?filter=upstream_rq'
  pilot-agent request POST 'logging?level=debug'`,
		Args: cobra.ExactArgs(2),
	}
	c.Flags().Uint16Var(&port, "proxyAdminPort", 15000, "port of the admin interface, on loopback")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd)
		defer stop()
		resp, err := envoy.NewAdmin(net.JoinHostPort("localhost", strconv.Itoa(int(port)))).Do(ctx, strings.ToUpper(args[0]), args[1])
		if err != nil {
			return fmt.Errorf("%w; is the agent running, and is %d its --proxyAdminPort?", err, port)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(cmd.OutOrStdout(), resp.Body); err != nil {
			return fmt.Errorf("reading the response: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("Envoy answered %s", resp.Status)
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
		Long:  `wait repeats a request until the proxy is ready or the timeout is exceeded. A container that must not start before its proxy runs it first.`,
		Args:  cobra.NoArgs,
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

// await sends a request immediately and then every period, until the status is 200.
func await(ctx context.Context, url string, timeout, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	client := &http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	began := time.Now()
	for {
		err := ask(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the proxy was not ready within %v: %w", time.Since(began).Round(time.Millisecond), err)
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
