package console

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
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

// Kubeconfig is the file that kubectl reads; empty if there is none. env returns a variable of the environment.
func Kubeconfig(env func(name string) (string, bool)) string {
	listed, _ := env("KUBECONFIG")
	if list := filepath.SplitList(listed); len(list) > 0 {
		return list[0]
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	path := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// ControlNamespace is the usual namespace of a control plane.
const ControlNamespace = "istio-system"

// Cluster are the flags that name a cluster, and the control plane in it.
type Cluster struct {
	Kubeconfig, Context string
	Namespace, Revision string
}

// Register adds all flags.
func (f *Cluster) Register(set *pflag.FlagSet) {
	f.Reach(set)
	f.Place(set)
}

// Reach adds the flags that name the cluster.
func (f *Cluster) Reach(set *pflag.FlagSet) {
	set.StringVarP(&f.Kubeconfig, "kubeconfig", "c", "", "kubeconfig file (default $KUBECONFIG, or ~/.kube/config)")
	set.StringVar(&f.Context, "context", "", "context of the kubeconfig (default its current one)")
}

// Place adds the flags that name the control plane, and need no cluster.
func (f *Cluster) Place(set *pflag.FlagSet) {
	f.Home(set)
	set.StringVarP(&f.Revision, "revision", "r", "", "revision of the control plane, for one beside others")
}

// Home adds the flag with the namespace of the control plane.
func (f *Cluster) Home(set *pflag.FlagSet) {
	set.StringVarP(&f.Namespace, "namespace", "n", ControlNamespace, "namespace of the control plane; --istioNamespace is the same")
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "istioNamespace" {
			name = "namespace"
		}
		return pflag.NormalizedName(name)
	})
}

// Connect returns how to reach the cluster.
func (f *Cluster) Connect() (*rest.Config, error) {
	return Connect(f.Kubeconfig, f.Context)
}
