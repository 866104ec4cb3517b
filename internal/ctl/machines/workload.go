// Package machines has the commands of pilotctl for proxies outside Kubernetes: workload makes the files with which a virtual machine joins the
// mesh, and token create issues tokens.
//
// The package starts no goroutines.
package machines

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/agent/vm"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

// Environment returns a variable of the environment, and whether it is set.
type Environment = func(name string) (string, bool)

// WorkloadCommand returns workload. env has the variables of the environment.
func WorkloadCommand(env Environment) *cobra.Command {
	c := &cobra.Command{Use: "workload", Short: "Virtual machines in the mesh"}
	group := &cobra.Command{Use: "group", Short: "WorkloadGroups: what machines of one kind have in common"}
	group.AddCommand(groupCreate())
	entry := &cobra.Command{Use: "entry", Short: "Single machines"}
	entry.AddCommand(entryConfigure(env))
	c.AddCommand(group, entry)
	return c
}

func groupCreate() *cobra.Command {
	c := &cobra.Command{
		Use:     "create --name NAME --namespace NAMESPACE",
		Short:   "Print a WorkloadGroup",
		Long:    `create prints a WorkloadGroup for kubectl apply.`,
		Example: `  pilotctl workload group create --name vm --namespace shop --labels app=shop --ports http=8080 --serviceAccount shop | kubectl apply -f -`,
		Args:    cobra.NoArgs,
	}
	var g vm.Group
	f := c.Flags()
	f.StringVar(&g.Name, "name", "", "name of the WorkloadGroup")
	f.StringVarP(&g.Namespace, "namespace", "n", "", "namespace of the WorkloadGroup")
	f.StringSliceVarP(&g.Labels, "labels", "l", nil, "labels of the workloads, NAME=VALUE")
	f.StringSliceVarP(&g.Annotations, "annotations", "a", nil, "annotations of the workloads, NAME=VALUE")
	f.StringSliceVarP(&g.Ports, "ports", "p", nil, "ports of the workloads, NAME=PORT")
	f.StringVarP(&g.ServiceAccount, "serviceAccount", "s", "default", "service account of the workloads")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := g.YAML()
		if err != nil {
			return run.Usage(err)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

const entryHelp = `configure writes the files with which a virtual machine joins the mesh into the folder -o: cluster.env, mesh.yaml, root-cert.pem,
istio-token and hosts. They are the files that istioctl writes, and go where the package pilot-agent looks for them:

  cluster.env     /var/lib/istio/envoy/cluster.env
  mesh.yaml       /etc/istio/config/mesh
  root-cert.pem   /etc/certs/root-cert.pem
  istio-token     /var/run/secrets/tokens/istio-token
  hosts           append it to /etc/hosts

It reads the WorkloadGroup (--name and --namespace, or -f), the mesh configuration and the roots of the mesh from the cluster, and asks
it for a token of the service account in the template of the group. A holder of the token can act as that service account until it
expires; the machine needs it once, for its first certificate.

Outside Kubernetes, --stateDir names the state folder of the control plane, which has the key of tokens and the roots; run it on the
host and as the user of the control plane, with -f and, if there is one, --meshConfig. Such a control plane registers no proxies: write
a WorkloadEntry for the machine.`

// entryFlags are the flags of configure.
type entryFlags struct {
	file, name, namespace, output, kubeconfig                string
	istioNamespace, revision, clusterID, ingressService      string
	ingressIP                                                []string
	internalIP, externalIP, discovery, stateDir, meshConfigs string
	seconds                                                  int64
	register, dns                                            bool

	env Environment
}

func entryConfigure(env Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "configure -o FOLDER",
		Short: "Write the files with which a virtual machine joins the mesh",
		Long:  entryHelp,
		Example: `  pilotctl workload entry configure --name vm --namespace shop --autoregister -o vm-files
  pilotctl workload entry configure -f group.yaml --ingressIP 203.0.113.7 --tokenDuration 86400 -o vm-files

  # outside Kubernetes, on the host of the control plane
  pilotctl workload entry configure -f group.yaml --stateDir ~/.local/state/pilot --discoveryAddress 192.0.2.1:15012 -o vm-files`,
		Args: cobra.NoArgs,
	}
	e := &entryFlags{env: env}
	f := c.Flags()
	f.StringVarP(&e.file, "file", "f", "", "file with the WorkloadGroup")
	f.StringVar(&e.name, "name", "", "name of the WorkloadGroup")
	f.StringVarP(&e.namespace, "namespace", "n", "", "namespace of the WorkloadGroup")
	f.StringVarP(&e.output, "output", "o", "", "folder for the files")
	f.StringVar(&e.clusterID, "clusterID", "Kubernetes", "ID of the cluster to which the machine belongs")
	f.Int64Var(&e.seconds, "tokenDuration", 3600, "how long the token is valid, in seconds")
	f.StringSliceVar(&e.ingressIP, "ingressIP", nil, "addresses at which machines reach the control plane (default: the addresses of --ingressService)")
	f.StringVar(&e.ingressService, "ingressService", "istio-eastwestgateway", "service in the namespace of the control plane over which machines reach it")
	f.BoolVar(&e.register, "autoregister", false, "let the control plane make a WorkloadEntry when the machine connects")
	f.BoolVar(&e.dns, "capture-dns", true, "let the agent answer the machine's DNS queries")
	f.StringVar(&e.internalIP, "internalIP", "", "address of the machine (default: the address of its first network interface)")
	f.StringVar(&e.externalIP, "externalIP", "", "address at which others reach the machine, if that is not one of its own")
	f.StringVar(&e.discovery, "discoveryAddress", "", "host:port of the control plane (default: from the mesh configuration, or of its service)")
	f.StringVarP(&e.istioNamespace, "istioNamespace", "i", "istio-system", "namespace of the control plane")
	f.StringVarP(&e.revision, "revision", "r", "", "revision of the control plane")
	f.StringVarP(&e.kubeconfig, "kubeconfig", "c", "", "kubeconfig file (default $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&e.stateDir, "stateDir", "", "state folder of a control plane outside Kubernetes; then no cluster is asked")
	f.StringVar(&e.meshConfigs, "meshConfig", "", "file with the mesh configuration (default the ConfigMap of the control plane)")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return e.run(cmd) }
	return c
}

func (e *entryFlags) run(cmd *cobra.Command) error {
	switch {
	case e.output == "":
		return run.Usage(errors.New("name a folder for the files with -o"))
	case e.file == "" && (e.name == "" || e.namespace == "" || e.stateDir != ""):
		return run.Usage(errors.New("name the WorkloadGroup: with --name and --namespace in a cluster, or with its file (-f)"))
	case e.seconds < 1 || time.Duration(e.seconds) > longestToken/time.Second:
		return run.Usage(fmt.Errorf("--tokenDuration: %d is not between 1 and %d seconds", e.seconds, int64(longestToken/time.Second)))
	}
	var from origin = folder{dir: statefile.Dir(e.stateDir)}
	if e.stateDir == "" {
		access, err := kube.Connect(cmp.Or(e.kubeconfig, console.Kubeconfig(e.env)))
		if err != nil {
			return err
		}
		if from, err = cluster.NewMachines(access); err != nil {
			return err
		}
	}
	facts, err := e.facts(cmd.Context(), from)
	if err != nil {
		return err
	}
	files, remarks, err := vm.Files(facts)
	if err != nil {
		return run.Usage(err)
	}
	if e.stateDir != "" && e.register {
		remarks = append(remarks, "--autoregister: a control plane that reads files registers no proxies; write a WorkloadEntry for the machine")
	}
	for _, text := range remarks {
		fmt.Fprintln(cmd.ErrOrStderr(), "remark:", text)
	}
	return e.write(cmd, files)
}

// write writes the files, each whole.
func (e *entryFlags) write(cmd *cobra.Command, files []vm.File) error {
	if err := os.MkdirAll(e.output, 0o755); err != nil {
		return fmt.Errorf("the folder for the files (-o): %w", err)
	}
	for _, file := range files {
		path := filepath.Join(e.output, file.Name)
		if err := renameio.WriteFile(path, file.Content, file.Mode, renameio.WithTempDir(e.output), renameio.IgnoreUmask()); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), path); err != nil {
			return err
		}
	}
	return nil
}
