package console

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotmesh/pilot/internal/run"
)

// Connect returns how to reach the cluster of a context of a kubeconfig; empty names mean the ones of kubectl.
func Connect(kubeconfig, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	access, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, run.Usage(fmt.Errorf("the cluster: %w; name a kubeconfig file with --kubeconfig, and one of its contexts with --context", err))
	}
	return access, nil
}
