// Package cluster writes to the Kubernetes cluster of the control plane: it elects a leader among the replicas, and writes the
// statuses of objects. Package source/kube reads from clusters.
//
// The package starts no goroutines; package election starts one for the leader's work.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/controller/election"
	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// Lease names the lease that replicas compete for.
type Lease struct {
	Namespace, Name string
	// Identity is the name of this replica. No two replicas may have the same.
	Identity string
	Log      *slog.Logger
}

// Lead calls work whenever this process is the leader, until ctx ends. The context of work ends when the process is no longer the
// leader, and Lead waits for work to return before it competes again. A leader that is killed is replaced within about 15 seconds; one that ends
// gives the lease back.
func Lead(ctx context.Context, config *rest.Config, l Lease, work func(ctx context.Context)) error {
	client, err := kubeclient.Leases(rest.AddUserAgent(rest.CopyConfig(config), "leader-election"), l.Namespace)
	if err != nil {
		return fmt.Errorf("a client for the election of a leader: %w", err)
	}
	log := l.Log.With("lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
	candidate := &election.Candidate{
		Leases: client, Name: l.Name, Identity: l.Identity,
		// As in Kubernetes' own components.
		Times:   election.Times{Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
		Started: func() { log.Info("this replica is the leader") },
		Stopped: func(err error) {
			ended := log
			if err != nil {
				ended = log.With("error", err)
			}
			ended.Info("this replica is no longer the leader")
		},
	}
	candidate.Run(ctx, work)
	return nil
}
