package kube

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Connect returns how to reach the API server that a kubeconfig file names in its current context, or, if kubeconfig is empty,
// that of the cluster in which this process runs as a pod. It sends no request.
func Connect(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no Kubernetes API server is known: this process runs in no pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT " +
				"are not set); name a kubeconfig file with --kubeconfig, or remove Kubernetes from --registries")
		}
		if err != nil {
			return nil, fmt.Errorf("read the service account of this pod: %w; mount a token of it (automountServiceAccountToken), or name a kubeconfig file with --kubeconfig", err)
		}
		return c, nil
	}
	file, err := clientcmd.LoadFromFile(kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("kubeconfig file %s does not exist; correct --kubeconfig", kubeconfig)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig file %s: %w; make sure that it is a readable kubeconfig in YAML", kubeconfig, err)
	}
	return connect(kubeconfig, file)
}

// connect returns how to reach the cluster of the current context of a kubeconfig.
func connect(path string, file *clientcmdapi.Config) (*rest.Config, error) {
	if err := checkContext(file); err != nil {
		return nil, fmt.Errorf("kubeconfig file %s: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubeconfig file %s: resolve the paths in it: %w", path, err)
	}
	c, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig file %s: the context %q cannot be used: %w; correct the file", path, file.CurrentContext, err)
	}
	return c, nil
}

// checkContext checks that the current context and what it refers to exist. client-go would fall back to localhost in some of
// these cases.
func checkContext(file *clientcmdapi.Config) error {
	if file.CurrentContext == "" {
		return errors.New("it has no current-context; choose one with kubectl config use-context")
	}
	c := file.Contexts[file.CurrentContext]
	if c == nil {
		return fmt.Errorf("its current-context %q does not exist; choose another one with kubectl config use-context", file.CurrentContext)
	}
	cluster := file.Clusters[c.Cluster]
	switch {
	case cluster == nil:
		return fmt.Errorf("the context %q refers to the cluster %q, which the file does not define; add it to clusters", file.CurrentContext, c.Cluster)
	case cluster.Server == "":
		return fmt.Errorf("the cluster %q has no server; set clusters[].cluster.server", c.Cluster)
	case c.AuthInfo != "" && file.AuthInfos[c.AuthInfo] == nil:
		return fmt.Errorf("the context %q refers to the user %q, which the file does not define; add it to users", file.CurrentContext, c.AuthInfo)
	}
	return nil
}
