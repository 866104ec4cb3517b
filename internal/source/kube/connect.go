package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Connect returns how to reach the API server that a kubeconfig file names in its current context, or, if kubeconfig is empty,
// the API server of the cluster in which this process runs as a pod. It sends no request.
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

// ConnectRemote returns how to reach the API server of the current context of a kubeconfig that is the value of a Secret. Write
// access to the Secret must not allow running programs on the control plane's machine or reading its files: plugins and paths are refused.
// The error never quotes the kubeconfig. warning, if not empty, is a part that is dangerous and accepted.
func ConnectRemote(kubeconfig Kubeconfig) (c *rest.Config, warning string, err error) {
	if len(kubeconfig) == 0 {
		return nil, "", errors.New("it is empty; write a kubeconfig as its value")
	}
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The error may quote the text, and with it a credential.
		return nil, "", errors.New("it is not a kubeconfig: it is not YAML or JSON of apiVersion v1 and kind Config, or a field has a wrong type; compare it with the output of kubectl config view --raw")
	}
	if err := checkContext(file); err != nil {
		return nil, "", err
	}
	context := file.Contexts[file.CurrentContext]
	if err := checkRemote(file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]); err != nil {
		return nil, "", err
	}
	c, err = clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the context %q cannot be used; check its cluster and its user", file.CurrentContext)
	}
	if c.Insecure {
		warning = "insecure-skip-tls-verify is set: anybody on the way to the API server can read the credentials; set certificate-authority-data instead"
	}
	return c, warning, nil
}

// checkRemote refuses fields that a kubeconfig in a Secret must not have. user is nil if the context has none.
func checkRemote(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	const remedy = "; the control plane runs no programs and reads no files that a Secret names: "
	if cluster.CertificateAuthority != "" {
		return errors.New("it names a file (certificate-authority)" + remedy + "put the certificates into certificate-authority-data")
	}
	for _, at := range []struct{ field, text string }{{"server", cluster.Server}, {"proxy-url", cluster.ProxyURL}} {
		u, err := url.Parse(at.text)
		switch {
		case err != nil || at.text != "" && u.Host == "":
			return fmt.Errorf("its %s is not a URL; write https://host:port", at.field)
		case u.User != nil:
			return fmt.Errorf("its %s contains a user or a password; remove them, and put a token into users[].user.token", at.field)
		}
	}
	switch {
	case user == nil:
		return nil
	case user.Exec != nil:
		return errors.New("it names a program that fetches credentials (exec)" + remedy + "make a token for a service account of that cluster (kubectl create token) and put it into token")
	case user.AuthProvider != nil:
		return errors.New("it names an auth-provider" + remedy + "make a token for a service account of that cluster (kubectl create token) and put it into token")
	case user.TokenFile != "":
		return errors.New("it names a file (tokenFile)" + remedy + "put the token into token")
	case user.ClientCertificate != "":
		return errors.New("it names a file (client-certificate)" + remedy + "put the certificate into client-certificate-data")
	case user.ClientKey != "":
		return errors.New("it names a file (client-key)" + remedy + "put the key into client-key-data")
	}
	return nil
}

// checkContext checks that the current context and the entries to which it refers exist. client-go would fall back to localhost in some of
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
