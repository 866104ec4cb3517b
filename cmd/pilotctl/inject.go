package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/inject"
	"github.com/pilotmesh/pilot/internal/run"
)

// injectHelp is the long help of the command.
const injectHelp = `kube-inject adds the proxy to the workloads of a file and prints all documents of the file in their order. Documents that are no workloads stay as
they are. It reads files only and never asks a cluster.

Every workload is injected that does not decline with the label sidecar.istio.io/inject=false, is not in the network of its host, and is not in
a system namespace such as kube-system. With --namespaceLabels the command does instead what a cluster would do with the pods in such
a namespace: the selectors of the webhook, the policy and the selectors of the values decide, and default templates, added annotations and
ProxyConfigs count. pilotctl explain injection shows these steps.

Values (--valuesFile) are the Helm values of the control plane; the chart has defaults for the others. The control plane's variables
ENABLE_NATIVE_SIDECARS, COMPLIANCE_POLICY and PLATFORM=openshift are read from the environment, the first also from pilot.env of the
values.

Exit codes: 0 done, also if nothing was injected; 1 a workload was refused, or the settings in the files cannot be used, and nothing is printed;
2 the command line is invalid.`

// injectFlags are the settings of the injection of a file.
type injectFlags struct {
	files                               []string
	mesh, values, config, revision      string
	namespaceLabels, namespaceAnnotated string
}

func (f *injectFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.mesh, "meshConfigFile", "", "file with the mesh settings (MeshConfig)")
	set.StringVar(&f.values, "valuesFile", "", "file with the Helm values of the control plane")
	set.StringVar(&f.config, "configFile", "", "file with ProxyConfigs of the cluster")
	set.StringVarP(&f.revision, "revision", "r", "", "revision of the control plane (default: the revision in the values)")
	set.StringVar(&f.namespaceLabels, "namespaceLabels", "", "labels of the namespace of the pods, NAME=VALUE,...; then the command decides as a cluster would")
	set.StringVar(&f.namespaceAnnotated, "namespaceAnnotations", "", "annotations of the namespace, as a JSON object")
}

func injectCommand() *cobra.Command {
	f := &injectFlags{}
	c := &cobra.Command{
		Use:   "kube-inject -f FILE",
		Short: "Add the proxy to the workloads of a file",
		Long:  injectHelp,
		Example: `  pilotctl kube-inject -f shop.yaml | kubectl apply -f -
  pilotctl kube-inject -f shop.yaml --valuesFile values.yaml --meshConfigFile mesh.yaml
  pilotctl kube-inject -f shop.yaml --namespaceLabels istio-injection=enabled`,
		Args: cobra.NoArgs,
	}
	c.Flags().StringSliceVarP(&f.files, "filename", "f", nil, "file with workloads; - is the standard input")
	f.register(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(f.files) == 0 {
			return run.Usage(errors.New("name the file with the workloads with -f, or write -f - for the standard input"))
		}
		var out []byte
		err := f.each(cmd, f.files, func(text []byte, outcomes []inject.Outcome) {
			for _, o := range outcomes {
				if !o.Decision.Inject {
					fmt.Fprintf(cmd.ErrOrStderr(), "%v is not injected: %s\n", o, o.Decision.Reason)
				}
				for _, w := range o.Warnings {
					fmt.Fprintf(cmd.ErrOrStderr(), "%v: %s\n", o, w)
				}
			}
			if len(out) > 0 && !strings.HasPrefix(string(text), "---") {
				out = append(out, "---\n"...)
			}
			out = append(out, text...)
		})
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(out)
		return err
	}
	return c
}

// each injects the workloads of files.
func (f *injectFlags) each(cmd *cobra.Command, files []string, take func(text []byte, outcomes []inject.Outcome)) error {
	injector, namespace, err := f.injector(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range files {
		data, err := console.Input(name, cmd.InOrStdin())
		if err != nil {
			return run.Usage(err)
		}
		text, outcomes, err := injector.File(name, data, namespace)
		errs = append(errs, err)
		take(text, outcomes)
	}
	return errors.Join(errs...)
}

// injector reads the settings. Problems of ProxyConfigs go to warnings, because one bad object must not stop the others; so do fields of the mesh
// configuration that have no effect.
func (f *injectFlags) injector(warnings io.Writer) (*inject.Injector, *inject.Namespace, error) {
	var c inject.Config
	var texts [3][]byte
	for n, name := range []string{f.mesh, f.values, f.config} {
		if name == "" {
			continue
		}
		var err error
		if texts[n], err = os.ReadFile(name); err != nil {
			return nil, nil, run.Usage(err)
		}
	}
	mesh, problems := api.DecodeMesh(f.mesh, texts[0])
	if mesh == nil {
		return nil, nil, fmt.Errorf("%s cannot be used: %v", f.mesh, problems)
	}
	for _, p := range problems {
		fmt.Fprintln(warnings, p)
	}
	values, err := inject.ParseValues(texts[1])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.values, err)
	}
	c.Mesh, c.Values, c.Revision = mesh, values, f.revision
	if c.Revision == "" {
		c.Revision = values.Revision
	}
	c.ProxyConfigs, problems = inject.ReadProxyConfigs(f.config, texts[2])
	for _, p := range problems {
		fmt.Fprintln(warnings, p)
	}
	setting := os.Getenv("ENABLE_NATIVE_SIDECARS")
	if setting == "" {
		setting = string(values.Pilot.Env["ENABLE_NATIVE_SIDECARS"])
	}
	if c.NativeSidecars, err = inject.NativeSidecars(setting, nil); err != nil {
		return nil, nil, err
	}
	c.Compliance, c.OpenShift, c.Tag = os.Getenv("COMPLIANCE_POLICY"), os.Getenv("PLATFORM") == "openshift", run.ReadBuild().ImageTag()
	namespace, err := f.namespace()
	if err != nil {
		return nil, nil, run.Usage(err)
	}
	injector, err := inject.New(c)
	return injector, namespace, err
}

// namespace reads the labels and annotations of the namespace; nil if there are none.
func (f *injectFlags) namespace() (*inject.Namespace, error) {
	if f.namespaceLabels == "" && f.namespaceAnnotated == "" {
		return nil, nil
	}
	n := &inject.Namespace{Labels: map[string]string{}, Annotations: map[string]string{}}
	for pair := range strings.SplitSeq(f.namespaceLabels, ",") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("--namespaceLabels: %q is not NAME=VALUE", pair)
		}
		n.Labels[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	n.Name = n.Labels["kubernetes.io/metadata.name"]
	if f.namespaceAnnotated != "" {
		if err := json.Unmarshal([]byte(f.namespaceAnnotated), &n.Annotations); err != nil {
			return nil, fmt.Errorf("--namespaceAnnotations: it is no JSON object of texts: %w", err)
		}
	}
	return n, nil
}
