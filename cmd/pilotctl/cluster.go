package main

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/ctl/console"
)

// controlNamespace is the usual namespace of a control plane.
const controlNamespace = "istio-system"

// clusterFlags name a cluster, and the control plane in it.
type clusterFlags struct {
	kubeconfig, context string
	namespace, revision string
}

func (f *clusterFlags) register(set *pflag.FlagSet) {
	set.StringVarP(&f.kubeconfig, "kubeconfig", "c", "", "kubeconfig file (default $KUBECONFIG, or ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
	f.place(set)
}

// place adds the flags that need no cluster.
func (f *clusterFlags) place(set *pflag.FlagSet) {
	set.StringVarP(&f.namespace, "namespace", "n", controlNamespace, "namespace of the control plane; --istioNamespace is the same")
	set.StringVarP(&f.revision, "revision", "r", "", "revision of the control plane, for one beside others")
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "istioNamespace" {
			name = "namespace"
		}
		return pflag.NormalizedName(name)
	})
}

// connect returns how to reach the cluster.
func (f *clusterFlags) connect() (*rest.Config, error) {
	return console.Connect(f.kubeconfig, f.context)
}
