// Package console is what commands of pilotctl have in common: the address of a control plane and its pages, the formats of output, connections to
// clusters, and names for the completion of a command line.
//
// Errors say what failed and the remedy. Completion is bounded in time and silent, because a shell cannot show an error. The package starts no
// goroutines.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/run"
)

// RequestTimeout is how long the control plane may take to respond.
const RequestTimeout = 30 * time.Second

// Address adds the flag for the address of the control plane.
func Address(c *cobra.Command) *string {
	return c.Flags().String("address", defaultAddress, "address of the control plane's pages (its --httpAddr); without one on this host, a pod of the kubeconfig's cluster is asked")
}

// Get reads a page of the control plane into v.
func Get(ctx context.Context, address, page string, query url.Values, v any) error {
	at, err := PageAt(address, page, query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return run.Usage(fmt.Errorf("--address: %w", err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("request to the control plane: %w; is it running, and is --address its --httpAddr?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("request to the control plane: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", at, resp.Status, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s is not the response of a control plane: %w", at, err)
	}
	return nil
}

// PageAt returns the URL of a page at an address, with or without its scheme.
func PageAt(address, page string, query url.Values) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return nil, run.Usage(fmt.Errorf("--address: %q is not an address; write http://host:port", address))
	}
	at := base.JoinPath(page)
	at.RawQuery = query.Encode()
	return at, nil
}
