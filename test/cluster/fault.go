package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// StopAPIServer ends the API server. Pods keep running; no client sees a change until StartAPIServer.
func (c *Cluster) StopAPIServer() { c.control.api.stop(stopGrace) }

// KillAPIServer ends the API server at once, as a crash does.
func (c *Cluster) KillAPIServer() { c.control.api.stop(0) }

// StartAPIServer starts it again on the same data and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.control.api.start(); err != nil {
		return err
	}
	return c.control.ready(ctx, c.admin)
}

// RestartAPIServer stops it and starts it again. Watches break, as they do in an upgrade.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.StopAPIServer()
	return c.StartAPIServer(ctx)
}

// FreezeControllers suspends kube-controller-manager: EndpointSlices, for one, no longer follow pods.
// ThawControllers resumes it.
func (c *Cluster) FreezeControllers() error { return c.control.controllers.signal(syscall.SIGSTOP) }

// ThawControllers undoes FreezeControllers.
func (c *Cluster) ThawControllers() error { return c.control.controllers.signal(syscall.SIGCONT) }

// DelayEndpointSlices makes service addresses and DNS of the cluster follow EndpointSlices late; others see them in time.
func (c *Cluster) DelayEndpointSlices(d time.Duration) error {
	if c.network == nil {
		return fmt.Errorf("a cluster without nodes has no service addresses")
	}
	c.network.DelayEndpoints(d)
	return nil
}

// Compact makes etcd forget all revisions but the present one, as it does every few minutes in a cluster that runs for long. Together
// with a restart of the API server, which loses its own memory of revisions, watches from older ones are answered "410 Gone".
func (c *Cluster) Compact(ctx context.Context) error {
	client, err := c.pki.etcdClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.askEtcd(ctx, client, "/v3/kv/range", `{"key": "AA=="}`, &now); err != nil {
		return err
	}
	return c.askEtcd(ctx, client, "/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, now.Header.Revision), &now)
}

// askEtcd posts a request to etcd, which answers gRPC as JSON as well.
func (c *Cluster) askEtcd(ctx context.Context, client *http.Client, path, body string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.layout.etcdURL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("etcd answers %s to %s: %s", resp.Status, path, text)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
