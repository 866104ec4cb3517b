package main

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/run/kubeclient"
)

// deleted reports whether the DaemonSet that runs this command is being deleted, unlike at an upgrade, or when a node is drained. An account that
// may not ask any more has been deleted together with the DaemonSet.
func deleted(ctx context.Context, client *kubeclient.Apps, namespace, name string, log *slog.Logger) bool {
	if name == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d, err := client.DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return true
	case err != nil:
		log.Warn("the plugin stays on the node, because the DaemonSet cannot be read", "error", err)
		return false
	}
	return d.DeletionTimestamp != nil
}
