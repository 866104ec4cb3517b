package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/ctl/install/check"
	"github.com/pilotmesh/pilot/internal/run"
)

const checkHelp = `check says whether a cluster is fit for a control plane, and whether the installed one can do its work. Call it before and after install and
upgrade. It changes nothing. It checks:

  api server      it answers, and its version
  clock           this machine and the API server have the same time
  permissions     of your account, to install
  definitions     of Istio's kinds: all exist, with all versions
  installation    its version, and whether replicas are available
  control planes  others in the cluster, of any tool; two of one revision
  webhooks        each has endpoints and a root; two that inject the same pods
  certificates    of the authority: when they expire
  pod security    namespaces that refuse the container that captures traffic
  injection       the API server reaches the webhook: a pod of a namespace with injection, as a dry run

With --from-istio it says instead what of a mesh of Istio behaves differently on Pilot, and what to change before the move: objects that are refused,
fields, labels and variables of the control plane that are ignored, and the pages about decisions that differ from Istio's for the kinds in use. It reads the mesh from
the cluster, where --namespace is the namespace of istiod, or from files (--file). It reads no Secrets.

Exit codes: 0 nothing is wrong, except for warnings; 1 something is wrong; 2 the command line is invalid.`

func checkCommand() *cobra.Command {
	f, istio := &console.Cluster{}, &fromIstio{}
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a cluster and the control plane on it",
		Long:  checkHelp,
		Example: `  pilotctl check
  pilotctl check --revision canary
  pilotctl check --from-istio
  pilotctl check --from-istio --file mesh/ -o json | jq '.[] | select(.effect != "differs")'
  pilotctl check -o json | jq '.[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
	}
	form := addOutput(c)
	f.Register(c.Flags())
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long the command may take")
	c.Flags().BoolVar(&istio.on, "from-istio", false, "say what of a mesh of Istio behaves differently on Pilot")
	c.Flags().StringSliceVar(&istio.files, "file", nil, "with --from-istio: file or directory to read instead of the cluster")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if istio.on {
			return istio.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), f, *form, timeout)
		}
		if len(istio.files) > 0 {
			return run.Usage(errors.New("--file: it is for --from-istio; pilotctl analyze checks files"))
		}
		access, err := f.Connect()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		revision := f.Revision
		if revision == "default" {
			revision = ""
		}
		found, err := check.Run(ctx, access, check.Options{Namespace: f.Namespace, Revision: revision, Version: run.ReadBuild().Version, Now: time.Now})
		if err != nil {
			return err
		}
		if *form == text {
			writeFindings(cmd.OutOrStdout(), found)
		} else if err := write(cmd.OutOrStdout(), *form, found); err != nil {
			return err
		}
		for _, one := range found {
			if one.Level == check.Error {
				return run.ErrFailed
			}
		}
		return nil
	}
	return c
}

// writeFindings writes a line for each finding, and its remedy below.
func writeFindings(w io.Writer, found []check.Finding) {
	p := painter(w)
	colors := map[check.Level]color{check.OK: green, check.Warning: yellow, check.Error: red}
	for _, one := range found {
		fmt.Fprintf(w, "%s  %s: %s\n", p.in(colors[one.Level], fmt.Sprintf("%-7s", one.Level)), one.Check, one.Result)
		if one.Remedy != "" {
			fmt.Fprintf(w, "         %s (%s)\n", one.Remedy, one.Page)
		}
	}
}
