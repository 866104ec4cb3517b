// Package tag is the command pilotctl tag: names of revisions, which namespaces choose.
//
// The package starts no goroutines.
package tag

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install"
	"github.com/pilotmesh/pilot/internal/ctl/install/tags"
	"github.com/pilotmesh/pilot/internal/run"
)

const help = `A tag is another name of a revision of the control plane. Namespaces and pods choose it like a revision, with the label istio.io/rev=TAG, and
move to another revision when the tag is moved and their pods are made again. The tag default takes the place of the control plane without a revision:
namespaces with istio-injection=enabled belong to it.

Each tag is a MutatingWebhookConfiguration with the labels istio.io/tag and istio.io/rev, as in Istio.`

const setHelp = `set makes a tag, or moves it to another revision. The revision must be installed, by whatever tool, and answer.

A tag that points to another revision is moved only with --overwrite. So is the tag default put in the place of a control plane without a revision,
whose webhooks are then idle until the tag is removed. Pods that run keep their proxies until they are made again.

Exit codes: 0 the tag points to the revision; 1 it does not; 2 the command line is invalid.`

const generateHelp = `generate prints the objects that set would make, as YAML. It changes nothing, and does not look whether the tag exists.

Exit codes: 0 the objects are printed; 1 the revision is not installed, or does not answer; 2 the command line is invalid.`

const listHelp = `list shows the tags of a cluster, their revisions, and the namespaces that choose them.

Exit codes: 0 success; 1 the cluster does not respond; 2 the command line is invalid.`

const removeHelp = `remove removes a tag. If namespaces choose it, it names them and removes the tag only with --skip-confirmation: their new pods would get no proxy. After the
removal of the tag default, a control plane without a revision injects again.

Exit codes: 0 the tag is removed; 1 it is not; 2 the command line is invalid.`

// Command returns tag.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "tag", Short: "Give revisions of the control plane other names", Long: help, Args: cobra.NoArgs}
	c.AddCommand(setCommand(), generateCommand(), listCommand(), removeCommand())
	return c
}

// place names a cluster, and the control plane in it.
type place struct {
	console.Cluster
	timeout time.Duration
}

func (p *place) register(f *pflag.FlagSet) {
	p.Reach(f)
	p.Home(f)
	f.DurationVar(&p.timeout, "timeout", time.Minute, "how long the command may take")
}

// cluster connects to the cluster. Progress goes to w.
func (p *place) cluster(w io.Writer) (*install.Cluster, error) {
	access, err := p.Connect()
	if err != nil {
		return nil, err
	}
	c, err := install.Connect(access)
	if err != nil {
		return nil, err
	}
	c.Say = func(line string, stays bool) {
		if stays {
			fmt.Fprintln(w, line)
		}
	}
	return c, nil
}

// changeFlags are the flags of set and generate.
type changeFlags struct {
	place
	tags.Change
}

func (f *changeFlags) register(set *pflag.FlagSet) {
	f.place.register(set)
	set.StringVarP(&f.Revision, "revision", "r", "", "revision of the control plane; default is the one without a revision")
	set.BoolVar(&f.AllNamespaces, "auto-inject-namespaces", false, "let the tag default inject pods of namespaces without labels, too")
}

// named completes the change with the argument, and checks it.
func (f *changeFlags) named(tag string) error {
	f.Tag, f.Namespace = tag, f.place.Namespace
	return run.Usage(f.Check())
}

func setCommand() *cobra.Command {
	f := &changeFlags{}
	c := &cobra.Command{
		Use: "set TAG --revision REVISION", Short: "Make a tag, or move it to another revision", Long: setHelp,
		Example: `  pilotctl tag set prod --revision 1-2
  pilotctl tag set prod --revision 1-3 --overwrite
  pilotctl tag set default --revision 1-3 --overwrite`,
		Args: cobra.ExactArgs(1),
	}
	f.register(c.Flags())
	c.Flags().BoolVar(&f.Overwrite, "overwrite", false, "move a tag that exists")
	c.ValidArgsFunction = f.complete
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.named(args[0]); err != nil {
			return err
		}
		cluster, err := f.cluster(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		if err := tags.Set(ctx, cluster, f.Change); err != nil {
			return err
		}
		label := install.RevisionLabel + "=" + f.Tag
		if f.Tag == install.DefaultRevision {
			label = "istio-injection=enabled"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), `
The tag %s points to the revision %s. Next:
  kubectl label namespace NAMESPACE %s  its new pods get a proxy of that revision
  kubectl rollout restart deployment -n NAMESPACE  the pods that run already get one
`, f.Tag, f.Revision, label)
		return err
	}
	return c
}

func generateCommand() *cobra.Command {
	f := &changeFlags{}
	c := &cobra.Command{
		Use: "generate TAG --revision REVISION", Short: "Print the objects of a tag", Long: generateHelp,
		Example: `  pilotctl tag generate prod --revision 1-3 | kubectl apply -f -`,
		Args:    cobra.ExactArgs(1),
	}
	f.register(c.Flags())
	c.ValidArgsFunction = f.complete
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.named(args[0]); err != nil {
			return err
		}
		cluster, err := f.cluster(io.Discard)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		objects, err := tags.Generate(ctx, cluster, f.Change)
		if err != nil {
			return err
		}
		text, err := install.Print(objects)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

func listCommand() *cobra.Command {
	p := &place{}
	c := &cobra.Command{
		Use: "list", Aliases: []string{"show"}, Short: "Show the tags of a cluster", Long: listHelp,
		Example: `  pilotctl tag list
  pilotctl tag list -o json | jq -r '.[] | select(.revision == "1-2") | .tag'`,
		Args: cobra.NoArgs,
	}
	p.register(c.Flags())
	form := console.Output(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cluster, err := p.cluster(io.Discard)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
		defer cancel()
		list, err := tags.List(ctx, cluster)
		if err != nil {
			return err
		}
		return console.Show(cmd.OutOrStdout(), *form, list, func(w io.Writer) error { return table(w, list) })
	}
	return c
}

// table writes tags as a table.
func table(w io.Writer, list []tags.Tag) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no revision has a tag; pilotctl tag set makes one")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TAG\tREVISION\tNAMESPACES")
	for _, one := range list {
		users := strings.Join(one.Namespaces, ",")
		if users == "" {
			users = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", one.Name, one.Revision, users)
	}
	return t.Flush()
}

func removeCommand() *cobra.Command {
	p := &place{}
	var force bool
	c := &cobra.Command{
		Use: "remove TAG", Aliases: []string{"delete"}, Short: "Remove a tag", Long: removeHelp,
		Example: `  pilotctl tag remove prod`,
		Args:    cobra.ExactArgs(1),
	}
	p.register(c.Flags())
	c.Flags().BoolVarP(&force, "skip-confirmation", "y", false, "remove the tag although namespaces choose it")
	c.ValidArgsFunction = p.complete
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, err := p.cluster(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
		defer cancel()
		return tags.Remove(ctx, cluster, args[0], force)
	}
	return c
}

// complete completes the name of a tag.
func (p *place) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := p.cluster(io.Discard)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), console.Completing)
	defer cancel()
	list, _ := tags.List(ctx, cluster) // a shell cannot show an error
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
