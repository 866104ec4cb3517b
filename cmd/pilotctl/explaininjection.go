package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/inject"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

const explainInjectionHelp = `injection says of each workload of a file, or of a pod of a cluster, whether it gets a proxy, and which rule decides: the selectors of the
webhook with the labels of the namespace and of the pod, the revision, the network of the host, the label sidecar.istio.io/inject, the
selectors of the values, and the policy. It also says why a workload would be refused.

FILE has workloads; - is the standard input. Without --namespaceLabels only what the workloads say themselves counts, as in pilotctl kube-inject.

POD is NAME or NAME.NAMESPACE. Its namespace, the mesh configuration (ConfigMap istio) and the values (ConfigMap istio-sidecar-injector) are read
from the cluster (--kubeconfig), with the rights of the caller.

Exit codes: 0 all workloads are injected; 1 some are not, or are refused, or the settings cannot be used; 2 the command line is invalid.`

// explainInjectionFlags are the flags of kube-inject and further ones.
type explainInjectionFlags struct {
	injectFlags

	kubeconfig, own, istioNamespace string
}

func explainInjection() *cobra.Command {
	f := &explainInjectionFlags{}
	c := &cobra.Command{
		Use:   "injection FILE|POD",
		Short: "Explain whether workloads get a proxy, and why",
		Long:  explainInjectionHelp,
		Example: `  pilotctl explain injection shop.yaml --namespaceLabels istio-injection=enabled
  pilotctl explain injection shop.yaml --namespaceLabels istio.io/rev=canary --revision canary
  pilotctl explain injection web-6d4b75cb6d-x2x4k.shop`,
		Args: cobra.ExactArgs(1),
	}
	form := addOutput(c)
	f.register(c.Flags())
	c.Flags().StringVarP(&f.kubeconfig, "kubeconfig", "c", "", "kubeconfig file for a pod (default $KUBECONFIG, or ~/.kube/config)")
	c.Flags().StringVarP(&f.own, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&f.istioNamespace, "istioNamespace", "i", "istio-system", "namespace of the control plane")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		outcomes, err := f.outcomes(cmd, args[0])
		if outcomes == nil && err != nil {
			return err
		}
		if *form != text {
			if err := write(cmd.OutOrStdout(), *form, outcomes); err != nil {
				return err
			}
		} else {
			writeOutcomes(cmd.OutOrStdout(), outcomes)
		}
		for _, o := range outcomes {
			if !o.Decision.Inject || o.Refused != "" {
				return run.ErrFailed
			}
		}
		return nil
	}
	return c
}

// outcomes evaluates a file, or a pod of a cluster if there is no such file. With outcomes, the error says nothing that they do not say.
func (f *explainInjectionFlags) outcomes(cmd *cobra.Command, what string) (list []inject.Outcome, err error) {
	if _, err := os.Stat(what); what == "-" || err == nil {
		err := f.each(cmd, []string{what}, func(_ []byte, outcomes []inject.Outcome) { list = outcomes })
		if list == nil && err == nil {
			err = run.Usage(fmt.Errorf("%s has no workloads: no Pod, and no kind that makes pods", what))
		}
		return list, err
	}
	return f.pod(cmd.Context(), what)
}

// pod evaluates a pod of a cluster.
func (f *explainInjectionFlags) pod(ctx context.Context, what string) ([]inject.Outcome, error) {
	access, err := kube.Connect(cmp.Or(f.kubeconfig, console.Kubeconfig(os.LookupEnv)))
	if err != nil {
		return nil, fmt.Errorf("there is no file %s, and no cluster to look for such a pod: %w", what, err)
	}
	reader, err := cluster.NewMachines(access)
	if err != nil {
		return nil, err
	}
	found, err := reader.Injection(ctx, cluster.PodName(what, f.own), f.istioNamespace, f.revision)
	if err != nil {
		return nil, err
	}
	mesh, problems := api.DecodeMesh("the mesh configuration of the cluster", found.Mesh)
	if mesh == nil {
		return nil, fmt.Errorf("the mesh configuration of the cluster cannot be used: %v", problems)
	}
	values, err := inject.ParseValues(found.Values)
	if err != nil {
		return nil, fmt.Errorf("the values of the cluster: %w", err)
	}
	injector, err := inject.New(inject.Config{Mesh: mesh, Values: values, Revision: cmp.Or(f.revision, values.Revision), Tag: run.ReadBuild().ImageTag()})
	if err != nil {
		return nil, err
	}
	namespace := &inject.Namespace{Name: found.Namespace, Labels: found.Labels, Annotations: found.Annotations}
	_, outcomes, err := injector.File("the cluster", found.Pod, namespace)
	if len(outcomes) == 0 && err == nil {
		err = errors.New("the API server has returned no pod")
	}
	return outcomes, err
}

// writeOutcomes writes what became of workloads, with the rules in their order.
func writeOutcomes(w io.Writer, outcomes []inject.Outcome) {
	for n, o := range outcomes {
		if n > 0 {
			fmt.Fprintln(w)
		}
		switch {
		case o.Refused != "":
			fmt.Fprintf(w, "%v is refused: %s\n", o, o.Refused)
		case o.Decision.Inject:
			fmt.Fprintf(w, "%v gets a proxy: %s\n", o, o.Decision.Reason)
		default:
			fmt.Fprintf(w, "%v gets no proxy: %s\n", o, o.Decision.Reason)
		}
		for _, s := range o.Decision.Steps {
			fmt.Fprintf(w, "  %s: %s\n", s.Rule, s.Result)
		}
		for _, text := range o.Warnings {
			fmt.Fprintf(w, "  warning: %s\n", text)
		}
	}
}
