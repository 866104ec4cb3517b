package cluster

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// StopAPIServer ends the API server. Pods keep running; nobody hears of it until StartAPIServer.
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

// FreezeControllers stops kube-controller-manager in its tracks: EndpointSlices, for one, no longer follow pods, for
// anybody who watches them. ThawControllers lets it go on.
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
