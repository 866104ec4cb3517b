package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
)

// requestTimeout bounds a request to the control plane. A profile takes half a minute.
const requestTimeout = 60 * time.Second

func requestCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "request METHOD PATH [BODY]",
		Short: "Send an HTTP request to the control plane on this host and print the response",
		Long: `request sends an HTTP request to the pages of the control plane that runs on this host, and prints the body of the response as it is.
It takes the place of curl in images without one. PATH may have a query (/debug/problemz?level=error); /debug/list lists the pages.

Exit codes: 0 the status is 2xx; 1 it is another one, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilot-discovery request GET /debug/syncz
  pilot-discovery request GET '/debug/problemz?level=error&pretty'
  pilot-discovery request PUT '/debug/logging?level=proxies:debug'
  kubectl exec -n istio-system deploy/istiod -- pilot-discovery request GET /debug/push_status`,
		Args: cobra.RangeArgs(2, 3),
	}
	address := c.Flags().String("address", "http://127.0.0.1:8080", "address of the control plane's pages (its --httpAddr, or --monitoringAddr)")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := pageURL(*address, args[1])
		if err != nil {
			return run.Usage(err)
		}
		body := ""
		if len(args) == 3 {
			body = args[2]
		}
		return request(cmd.Context(), cmd.OutOrStdout(), strings.ToUpper(args[0]), at, body)
	}
	return c
}

// pageURL returns the URL of a path, which may have a query.
func pageURL(address, path string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Hostname() == "" {
		return "", fmt.Errorf("--address: %q is not an address; write http://host:port", address)
	}
	page, err := url.Parse("/" + strings.TrimPrefix(path, "/"))
	if err != nil {
		return "", fmt.Errorf("%q is not a path: %w", path, err)
	}
	at := base.JoinPath(page.Path)
	at.RawQuery = page.RawQuery
	return at.String(), nil
}

// request writes the body of a successful response to w. Another response is an error.
func request(ctx context.Context, w io.Writer, method, at, body string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return run.Usage(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("request to the control plane: %w; is it running on this host, and is --address its --httpAddr?", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return fmt.Errorf("the response of the control plane: %w", err)
		}
		return fmt.Errorf("%s %s: %s: %s", method, at, resp.Status, strings.TrimSpace(string(text)))
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("the response of the control plane: %w", err)
	}
	return nil
}
