// Package installation has the commands of pilotctl that put the control plane, gateways and the plugin on a cluster: install, upgrade, uninstall and
// manifest.
//
// The package starts no goroutines.
package installation

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install"
	"github.com/pilotmesh/pilot/internal/run"
)

const valuesHelp = `
Values have the names of Istio's chart istiod (doc/values.md has all of them). A value that does not exist is an error with the nearest name; one of
Istio's that has no effect here is named. The mesh configuration and the values of injection are checked before anything is written.`

const installHelp = `install puts the control plane on a cluster: the definitions of Istio's kinds, the namespace, the control plane, and the webhooks
once it is available. It renders the Helm charts of manifests/charts and applies the objects server-side.

With --chart pilot-gateway it puts a gateway with the name --name there, and with --chart pilot-cni the plugin that captures the traffic of pods
without rights in them; each is an installation of its own, with its own values.

It may be called again at any time: equal objects do not change, and an interrupted installation is completed. Values of a former call
stay in force unless this call sets them; --set NAME=null takes one back. Objects that another tool has made are never changed.
` + valuesHelp + `

Exit codes: 0 all is installed, and available unless --wait=false; 1 it is not; 2 the command line or the values are invalid.`

const upgradeHelp = `upgrade brings an installation to the version of this program, with the values that it has. Values of this call lie over them; --set NAME=null
takes one back. A stored value that no longer exists stops the upgrade before anything is written. Proxies keep their connections to the
replicas that remain, and reconnect from replicas that end.
` + valuesHelp + `

Exit codes: 0 all is upgraded, and available unless --wait=false; 1 it is not; 2 the command line or the values are invalid.`

const uninstallHelp = `uninstall removes the objects of the installation, webhooks first, and the objects that the control plane has written: the roots of the mesh in all
namespaces, its root with the key (Secret istio-ca-secret), its lease, the last good versions of policies, and entries of proxies. The
definitions of Istio's kinds stay, and with them the configuration of the mesh, unless --crds is set. Objects of others stay in any case, and the
namespace if something else is in it. Pods keep the proxies that they have until they are made again. --chart and --name name a gateway or the
plugin instead: then only its own objects are removed.

Exit codes: 0 nothing is left; 1 something could not be removed; 2 the command line is invalid.`

const manifestHelp = `manifest prints the objects that install would apply to an empty cluster, as YAML, in their order. It asks no cluster. With --chart
pilot-gateway it prints a gateway, and with --chart pilot-cni the plugin that captures the traffic of pods.
` + valuesHelp + `

Exit codes: 0 the objects are printed; 2 the command line or the values are invalid.`

// chartFlags name an installation: its chart, and its name if it is a gateway.
type chartFlags struct {
	chart, name string
}

func (f *chartFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.chart, "chart", install.ControlPlane, "the chart: pilot, pilot-gateway or pilot-cni")
	set.StringVar(&f.name, "name", "gateway", "name of a gateway")
}

// check returns an error if the flags contradict each other, or the flag --revision.
func (f *chartFlags) check(revision string, changed func(flag string) bool) error {
	switch f.chart {
	case install.ControlPlane, install.Gateway, install.Plugin:
	default:
		return fmt.Errorf("--chart: %q is none of %s, %s and %s", f.chart, install.ControlPlane, install.Gateway, install.Plugin)
	}
	switch {
	case f.chart == install.Plugin && revision != "":
		return fmt.Errorf("--revision: the plugin serves the pods of all revisions; leave the flag out")
	case f.chart != install.Gateway && changed("name"):
		return fmt.Errorf("--name: only gateways have names, with --chart %s", install.Gateway)
	}
	return nil
}

// valueFlags are the values of an installation.
type valueFlags struct {
	files, sets []string
	skipCRDs    bool
}

func (f *valueFlags) register(set *pflag.FlagSet) {
	set.StringSliceVarP(&f.files, "values", "f", nil, "file with values; - is the standard input; of several files the last one counts")
	set.StringArrayVar(&f.sets, "set", nil, "a value, NAME.NAME=VALUE; it goes before the values in files")
	set.BoolVar(&f.skipCRDs, "skip-crds", false, "leave out the definitions of Istio's kinds")
}

// read returns the values, with the revision of the flag.
func (f *valueFlags) read(stdin io.Reader, revision string) (map[string]any, error) {
	var files []install.File
	for _, name := range f.files {
		data, err := console.Input(name, stdin)
		if err != nil {
			return nil, run.Usage(fmt.Errorf("--values: %w", err))
		}
		files = append(files, install.File{Name: name, Text: data})
	}
	sets := f.sets
	if revision != "" {
		sets = append(sets[:len(sets):len(sets)], "revision="+revision)
	}
	values, err := install.ReadValues(files, sets)
	return values, run.Usage(err)
}

// plan returns the installation with values. The name of a gateway may be one of the values, as in Helm.
func (f *valueFlags) plan(namespace string, chart chartFlags, values map[string]any) install.Plan {
	build := run.ReadBuild()
	p := install.Plan{Namespace: namespace, Chart: chart.chart, Version: build.Version, Image: build.ImageTag(), Values: values, SkipDefinitions: f.skipCRDs}
	if p.Chart == install.Gateway {
		p.Gateway = chart.name
		if name, ok := values["name"].(string); ok && name != "" {
			p.Gateway = name
		}
	}
	return p
}

// ManifestCommand returns manifest.
func ManifestCommand() *cobra.Command {
	place, chart, values := &console.Cluster{}, &chartFlags{}, &valueFlags{}
	c := &cobra.Command{
		Use:   "manifest",
		Short: "Print the objects that an installation consists of",
		Long:  manifestHelp,
		Example: `  pilotctl manifest --skip-crds
  pilotctl manifest -f values.yaml --set global.hub=registry.example.com/mesh | kubectl diff -f -
  pilotctl manifest --chart pilot-gateway --name istio-ingress -n edge
  pilotctl manifest --chart pilot-cni | kubectl diff -f -`,
		Args: cobra.NoArgs,
	}
	place.Place(c.Flags())
	chart.register(c.Flags())
	values.register(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := chart.check(place.Revision, cmd.Flags().Changed); err != nil {
			return run.Usage(err)
		}
		v, err := values.read(cmd.InOrStdin(), place.Revision)
		if err != nil {
			return err
		}
		objects, warnings, err := values.plan(place.Namespace, *chart, v).Objects()
		if err != nil {
			return run.Usage(err)
		}
		warn(cmd.ErrOrStderr(), warnings)
		text, err := install.Print(objects)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

func warn(w io.Writer, warnings []string) {
	for _, one := range warnings {
		fmt.Fprintln(w, "warning:", one)
	}
}

// installFlags are the flags of install and upgrade.
type installFlags struct {
	console.Cluster
	chartFlags
	valueFlags

	wait    bool
	timeout time.Duration
}

func (f *installFlags) register(set *pflag.FlagSet) {
	f.Cluster.Register(set)
	f.chartFlags.register(set)
	f.valueFlags.register(set)
	set.BoolVar(&f.wait, "wait", true, "wait until all pods are available")
	set.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long the command may take")
}

// InstallCommand returns install.
func InstallCommand() *cobra.Command {
	f := &installFlags{}
	c := &cobra.Command{
		Use:   "install",
		Short: "Put the control plane on a cluster",
		Long:  installHelp,
		Example: `  pilotctl install
  pilotctl install -f values.yaml --set autoscaleMin=2
  pilotctl install --revision canary
  pilotctl install --chart pilot-gateway --name istio-ingress -n edge
  pilotctl install --chart pilot-cni
  pilotctl install --kubeconfig kind.yaml --context kind --wait=false`,
		Args: cobra.NoArgs,
	}
	f.register(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error { return f.install(cmd, false) }
	return c
}

// UpgradeCommand returns upgrade.
func UpgradeCommand() *cobra.Command {
	f := &installFlags{}
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Bring the control plane of a cluster to this version",
		Long:  upgradeHelp,
		Example: `  pilotctl upgrade
  pilotctl upgrade --set resources.requests.memory=4Gi
  pilotctl upgrade --revision canary --set env.SOME_VARIABLE=null
  pilotctl upgrade --chart pilot-gateway --name istio-ingress -n edge`,
		Args: cobra.NoArgs,
	}
	f.register(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error { return f.install(cmd, true) }
	return c
}

// install installs or upgrades.
func (f *installFlags) install(cmd *cobra.Command, upgrade bool) error {
	if err := f.check(f.Revision, cmd.Flags().Changed); err != nil {
		return run.Usage(err)
	}
	given, err := f.read(cmd.InOrStdin(), f.Revision)
	if err != nil {
		return err
	}
	access, err := f.Connect()
	if err != nil {
		return err
	}
	cluster, err := install.Connect(access)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	p := f.plan(f.Namespace, f.chartFlags, given)
	record, err := cluster.Installed(ctx, f.Namespace, p.Name())
	if err != nil {
		return err
	}
	if record == nil && upgrade {
		return fmt.Errorf("there is no such installation of pilotctl in the namespace %s to upgrade; call pilotctl install, or name another --namespace, --revision or --name", f.Namespace)
	}
	if record != nil {
		p.Values = install.Over(record.Values, given)
	}
	p.Wait = f.wait
	objects, warnings, err := p.Objects()
	if err != nil {
		if record != nil {
			err = fmt.Errorf("%w\nthe installation has stored values of version %s; take a value back that no longer exists with --set NAME=null", err, record.Version)
		}
		return run.Usage(err)
	}
	warn(cmd.ErrOrStderr(), warnings)
	out := cmd.OutOrStdout()
	cluster.Say = progress(out)
	if err := cluster.Install(ctx, p, objects); err != nil {
		return err
	}
	f.next(out, p)
	return nil
}

// next suggests the next steps to the user.
func (f *installFlags) next(out io.Writer, p install.Plan) {
	state := "is installed"
	if f.wait {
		state = "is ready"
	}
	fmt.Fprintf(out, "\n%s in the namespace %s %s. Next:\n", title(p), f.Namespace, state)
	for _, step := range steps(p) {
		fmt.Fprintf(out, "  %-57s  %s\n", step[0], step[1])
	}
}

// title names what a plan installs, at the start of a sentence.
func title(p install.Plan) string {
	switch p.Chart {
	case install.Gateway:
		return "The gateway " + p.Gateway
	case install.Plugin:
		return "The plugin"
	}
	return "The control plane"
}

// steps are commands that follow an installation, and the purpose of each.
func steps(p install.Plan) [][2]string {
	switch p.Chart {
	case install.Gateway:
		return [][2]string{
			{fmt.Sprintf("kubectl get service -n %s %s", p.Namespace, p.Gateway), "its addresses"},
			{"pilotctl get hosts", "which Gateways it serves, once they select it"},
		}
	case install.Plugin:
		return [][2]string{
			{"pilotctl install --set cni.enabled=true", "injected pods need no rights from now on"},
			{"kubectl rollout restart deployment -n NAMESPACE", "nor do the pods that run already, after it"},
		}
	}
	label := "istio-injection=enabled"
	if revision := p.Name().Release; revision != "" {
		label = "istio.io/rev=" + revision
	}
	return [][2]string{
		{"pilotctl check", "whether all is well"},
		{"kubectl label namespace NAMESPACE " + label, "its new pods get a proxy"},
		{"kubectl rollout restart deployment -n NAMESPACE", "the pods that run already get one"},
	}
}

// UninstallCommand returns uninstall.
func UninstallCommand() *cobra.Command {
	f, chart := &console.Cluster{}, &chartFlags{}
	var definitions bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the control plane from a cluster",
		Long:  uninstallHelp,
		Example: `  pilotctl uninstall
  pilotctl uninstall --crds
  pilotctl uninstall --revision canary
  pilotctl uninstall --chart pilot-gateway --name istio-ingress -n edge`,
		Args: cobra.NoArgs,
	}
	f.Register(c.Flags())
	chart.register(c.Flags())
	c.Flags().BoolVar(&definitions, "crds", false, "remove the definitions of Istio's kinds, and all objects of these kinds")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long the command may take")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := chart.check(f.Revision, cmd.Flags().Changed); err != nil {
			return run.Usage(err)
		}
		access, err := f.Connect()
		if err != nil {
			return err
		}
		cluster, err := install.Connect(access)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		cluster.Say = progress(cmd.OutOrStdout())
		removal := install.Removal{Namespace: f.Namespace, Name: install.Name{Chart: chart.chart}, Definitions: definitions}
		switch {
		case chart.chart == install.Gateway:
			removal.Name.Release = chart.name
		case f.Revision != "default":
			removal.Name.Release = f.Revision
		}
		return cluster.Uninstall(ctx, removal)
	}
	return c
}

// progress writes the lines of a long command. On terminals it also shows the state of waiting, in a line that the next one replaces.
func progress(w io.Writer) func(line string, stays bool) {
	terminal := console.IsTerminal(w)
	return func(line string, stays bool) {
		if terminal {
			fmt.Fprint(w, "\r\x1b[K")
		}
		switch {
		case stays:
			fmt.Fprintln(w, line)
		case terminal:
			fmt.Fprint(w, line)
		}
	}
}
