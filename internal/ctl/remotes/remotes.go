// Package remotes are the commands of pilotctl about remote clusters: create-remote-secret prints the Secret that describes one, and remote-clusters
// shows the remote clusters of a control plane.
//
// A token is in the printed Secret and nowhere else. The package starts no goroutines.
package remotes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

const remoteSecretHelp = `create-remote-secret prints a Secret for the cluster of the control plane, which then reads the services of another cluster, too. --kubeconfig and
--context name that other cluster. The Secret has a kubeconfig with a token of a service account there. All who can read the Secret can read that cluster as this account.

The token is valid until the Secret with it in the other cluster is removed, which the command creates if there is none. With --token-duration, the token
expires: print and apply the Secret again before.

The service account must exist; --print-account prints it with its permissions.

Exit codes: 0 success; 1 there is no such account, or a permission is missing; 2 the command line is invalid.`

// remoteSecret are the flags of create-remote-secret.
type remoteSecret struct {
	kubeconfig, context, namespace string
	name, server, account          string
	valid, timeout                 time.Duration
	printAccount                   bool
}

// SecretCommand returns create-remote-secret.
func SecretCommand() *cobra.Command {
	s := &remoteSecret{}
	c := &cobra.Command{
		Use: "create-remote-secret --name CLUSTER", Short: "Print a Secret with which a control plane reads another cluster", Long: remoteSecretHelp,
		Example: `  pilotctl create-remote-secret --context west --name west | kubectl --context east apply -f -
  pilotctl create-remote-secret --print-account | kubectl --context west apply -f -
  pilotctl create-remote-secret --context west --name west --server https://west.example.com:6443`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVarP(&s.kubeconfig, "kubeconfig", "c", "", "kubeconfig file (default $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&s.context, "context", "", "context of the kubeconfig (default its current one)")
	f.StringVarP(&s.namespace, "namespace", "n", "istio-system", "namespace of the service account, and of the Secret")
	f.StringVar(&s.name, "name", "", "ID of the other cluster (its --clusterID)")
	f.StringVar(&s.server, "server", "", "URL at which the control plane reaches the API server of the other cluster (default: the server of the kubeconfig)")
	f.StringVar(&s.account, "service-account", "istio-reader-service-account", "service account of the other cluster, in the namespace --namespace")
	f.DurationVar(&s.valid, "token-duration", 0, "how long the token is valid (default until its Secret is removed)")
	f.BoolVar(&s.printAccount, "print-account", false, "print the service account with its permissions, for the other cluster")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long the command may take")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.printAccount {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), cluster.ReaderAccount, s.namespace, s.account)
			return err
		}
		if err := s.check(); err != nil {
			return run.Usage(err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
		defer cancel()
		text, remarks, err := s.secret(ctx)
		for _, one := range remarks {
			fmt.Fprintln(cmd.ErrOrStderr(), "remark:", one)
		}
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

func (s *remoteSecret) check() error {
	switch {
	case s.name == "":
		return errors.New("name the other cluster with --name; its proxies say the same ID (clusterID, global.multiCluster.clusterName)")
	case strings.Trim(s.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "":
		return fmt.Errorf("--name: %q has other characters than letters, digits, - . and _, which a key of a Secret cannot have", s.name)
	case s.valid != 0 && s.valid < 10*time.Minute:
		return fmt.Errorf("--token-duration: %v is shorter than 10m, which no API server issues", s.valid)
	}
	return nil
}

// secret returns the Secret, and remarks about it.
func (s *remoteSecret) secret(ctx context.Context) (text []byte, remarks []string, err error) {
	access, err := console.Connect(s.kubeconfig, s.context)
	if err != nil {
		return nil, nil, err
	}
	machines, err := cluster.NewMachines(access)
	if err != nil {
		return nil, nil, err
	}
	token, roots, err := machines.ReaderToken(ctx, s.namespace, s.account, s.valid)
	if err != nil {
		return nil, nil, err
	}
	if len(roots) == 0 {
		if roots, err = rootsOf(access); err != nil {
			return nil, nil, err
		}
	}
	server := cmp.Or(s.server, access.Host)
	if at, err := url.Parse(server); err == nil {
		if ip, err := netip.ParseAddr(at.Hostname()); at.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
			remarks = append(remarks, server+" is this host: a control plane elsewhere cannot reach it; name another address with --server")
		}
	}
	if s.valid > 0 {
		remarks = append(remarks, fmt.Sprintf("the token expires in %v: after that, the services of %s stay as they are, with a Problem", s.valid, s.name))
	}
	text, err = writeSecret(s.name, s.namespace, server, token, roots)
	return text, remarks, err
}

// rootsOf are the roots of an API server in a kubeconfig.
func rootsOf(access *rest.Config) ([]byte, error) {
	if access.CAFile != "" {
		text, err := os.ReadFile(access.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the roots of the API server: %w; correct certificate-authority of the kubeconfig", err)
		}
		return text, nil
	}
	return access.CAData, nil
}

// writeSecret returns the Secret as YAML. It refuses what the control plane would refuse.
func writeSecret(name, namespace, server string, token, roots []byte) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: roots}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: string(token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w", err)
	}
	if _, _, err := kube.ConnectRemote(kubeconfig); err != nil {
		return nil, run.Usage(fmt.Errorf("the kubeconfig with --server: %w", err))
	}
	object := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]string{name: string(kubeconfig)},
		"metadata": map[string]any{
			"name": "istio-remote-secret-" + strings.ToLower(strings.ReplaceAll(name, "_", "-")), "namespace": namespace,
			"labels": map[string]string{"istio/multiCluster": "true"}, "annotations": map[string]string{"networking.istio.io/cluster": name},
		},
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("the Secret: %w", err)
	}
	return append([]byte("# This Secret has a token of the cluster "+name+". Treat it as a password.\n"), text...), nil
}

// ClustersCommand returns remote-clusters.
func ClustersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "remote-clusters", Short: "Show the remote clusters of a control plane",
		Long: `remote-clusters shows the clusters whose services the control plane reads besides its own cluster, as Secrets with the label istio/multiCluster=true describe them.

The states are: syncing, the cluster has not been listed yet; synced, its services are in force; stale, it cannot be read now and its last services
stay; refused, its kubeconfig cannot be used.

Exit codes: 0 all clusters are synced; 1 one is not, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl remote-clusters
  pilotctl remote-clusters -o json | jq -r '.[] | select(.syncStatus != "synced") | .id'`,
		Args: cobra.NoArgs,
	}
	address, form := console.Address(c), console.Output(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		list := []source.Cluster{}
		if err := console.Get(cmd.Context(), *address, "/debug/clusterz", nil, &list); err != nil {
			return err
		}
		if err := console.Show(cmd.OutOrStdout(), *form, list, func(w io.Writer) error { return writeClusters(w, list) }); err != nil {
			return err
		}
		for _, one := range list {
			if one.State != source.ClusterSynced {
				return run.ErrFailed
			}
		}
		return nil
	}
	return c
}

// writeClusters writes a table, and below it the problems.
func writeClusters(w io.Writer, list []source.Cluster) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no remote clusters: no Secret with the label istio/multiCluster=true describes one (pilotctl create-remote-secret)")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tSECRET\tSTATUS\tSERVER")
	for _, one := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", one.ID, one.Secret, one.State, cmp.Or(one.Server, "-"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	for _, one := range list {
		for _, p := range one.Problems {
			fmt.Fprintf(w, "%s: %s\n", one.ID, p)
		}
	}
	return nil
}
