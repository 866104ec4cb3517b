// Package cluster writes to the Kubernetes cluster of the control plane: it elects a leader among the replicas, and writes the
// statuses of objects. Package source/kube reads from clusters.
//
// Lead runs in the caller's goroutine and starts one for the leader's work, and waits for its end before it continues. Statuses starts none.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Lease names the lease that replicas compete for.
type Lease struct {
	Namespace, Name string
	// Identity is the name of this replica. No two replicas may have the same.
	Identity string
	Log      *slog.Logger
}

// The times of an election, as in Kubernetes' own components. A leader that is killed is replaced within about
// leaseDuration; one that ends gives the lease back.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lead calls work whenever this process is the leader, until ctx ends. The context of work ends when the process is no longer the
// leader, and Lead waits for work to return before it competes again. Clocks of replicas may differ: each measures only how long the
// lease has stayed unchanged.
func Lead(ctx context.Context, config *rest.Config, l Lease, work func(ctx context.Context)) error {
	client, err := coordination.NewForConfig(rest.AddUserAgent(rest.CopyConfig(config), "leader-election"))
	if err != nil {
		return fmt.Errorf("a client for the election of a leader: %w", err)
	}
	ctx = klog.NewContext(ctx, logr.Discard())
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
	}
	for ctx.Err() == nil {
		var begun atomic.Bool
		done := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: l.Name, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					if !begun.CompareAndSwap(false, true) {
						return // the term has ended already
					}
					defer close(done)
					l.Log.Info("this replica is the leader", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
					work(ctx)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("the election of a leader: %w", err)
		}
		elector.Run(ctx)
		if begun.CompareAndSwap(false, true) {
			continue
		}
		<-done
		l.Log.Info("this replica is no longer the leader", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
	}
	return nil
}
