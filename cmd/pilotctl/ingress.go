package main

import (
	"context"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/ctl/console"
	"github.com/pilotmesh/pilot/internal/explain/ingresses"
	"github.com/pilotmesh/pilot/internal/run"
)

func explainIngress() *cobra.Command {
	c := &cobra.Command{
		Use:   "ingress [HOST]",
		Short: "Explain what gateways serve for the hosts of Ingresses",
		Long: `ingress shows for each host that Ingresses have rules for: the gateways that serve it, their ports with the Secrets of the
certificates, and the routes in the order in which they are tried, each with its backend and the Ingress that it comes from. Routes
and certificates that lose to another Ingress are shown with the reason, and so are the Ingresses that do not count, because
they are of another class.

HOST is the Host header of a request. If no Ingress has rules for it, the narrowest pattern that covers it is shown, as *.example.com.

It asks a running control plane, or evaluates files (--filename).

Exit codes: 0 HOST has routes, or no HOST is named; 1 it has none, or the control plane does not respond; 2 the command line is invalid.`,
		Example: `  pilotctl explain ingress
  pilotctl explain ingress shop.example.com
  pilotctl explain ingress shop.example.com -f mesh/ --meshConfig mesh-settings.yaml
  kubectl get ingresses,ingressclasses -A -o yaml | pilotctl explain ingress -f -
  pilotctl explain ingress -o json | jq -r '.hosts[].host'`,
		Args: cobra.MaximumNArgs(1),
	}
	address, form := remote(c), addOutput(c)
	files := c.Flags().StringSliceP("filename", "f", nil, "file or directory to evaluate instead of asking a control plane; - is the standard input")
	meshConfigs := c.Flags().StringSlice("meshConfig", nil, "file with mesh settings (MeshConfig), for an evaluation of files")
	domain := c.Flags().String("domain", "cluster.local", "suffix of the names of services, for an evaluation of files")
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ingressHosts(cmd.Context(), *address), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		host := ""
		if len(args) > 0 {
			host = args[0]
		}
		a, err := askIngress(cmd, *address, host, *files, *meshConfigs, *domain)
		if err != nil {
			return err
		}
		show := a.Write
		if *form != text {
			show = func(w io.Writer) error { return write(w, *form, a) }
		}
		if err := show(cmd.OutOrStdout()); err != nil {
			return err
		}
		if host != "" && len(a.Hosts) == 0 {
			return run.ErrFailed
		}
		return nil
	}
	return c
}

// askIngress asks the control plane, or evaluates files if there are any.
func askIngress(cmd *cobra.Command, address, host string, files, meshConfigs []string, domain string) (*ingresses.Answer, error) {
	if len(files)+len(meshConfigs) == 0 {
		var a ingresses.Answer
		return &a, get(cmd.Context(), address, "/debug/ingressz", url.Values{"host": {host}}, &a)
	}
	all, err := evaluated(cmd, files, meshConfigs)
	if err != nil {
		return nil, run.Usage(err)
	}
	return all.Ingresses(domain, host), nil
}

// ingressHosts returns the hosts of Ingresses, or nil if the control plane does not respond.
func ingressHosts(ctx context.Context, address string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, console.Completing)
	defer cancel()
	var a ingresses.Answer
	if get(ctx, address, "/debug/ingressz", nil, &a) != nil {
		return nil // completion cannot show an error
	}
	for _, h := range a.Hosts {
		names = append(names, h.Host)
	}
	return names
}
